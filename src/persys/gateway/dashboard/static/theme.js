// Light, dark, or as the system has it. No module: it runs before anything is painted, so nothing flashes.
(() => {
  const KEY = "persys.theme";
  const kept = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  show(kept());
  globalThis.persysTheme = {
    get: () => kept() ?? "",
    set(theme) {
      try {
        if (theme) localStorage.setItem(KEY, theme);
        else localStorage.removeItem(KEY);
      } catch { /* not kept, but shown */ }
      show(theme);
    },
  };
})();
