// What the tab remembers until it is closed: the token and the selected cluster.

function stored(key: string) {
  return {
    get: () => sessionStorage.getItem(key) ?? "",
    set: (value: string) => (value ? sessionStorage.setItem(key, value) : sessionStorage.removeItem(key)),
  };
}

export const token = stored("persys.token");
export const cluster = stored("persys.cluster");
