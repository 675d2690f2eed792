// The theme: light, dark, or that of the system. This is not a module: it runs before the first paint, to avoid a flash.
(() => {
  const KEY = "persys.theme";
  const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  show(stored());
  globalThis.persysTheme = {
    get: () => stored() ?? "",
    set(theme) {
      try {
        if (theme) localStorage.setItem(KEY, theme);
        else localStorage.removeItem(KEY);
      } catch { /* no storage: used for this page only */ }
      show(theme);
    },
  };
})();
