// Loads the application, and reloads the page when the gateway responds again after a failed load. This is not a
// module, so that it runs even if no module can be loaded.
(() => {
  const RETRY_MS = 1000;
  const showText = (text) => { document.getElementById("main").textContent = text; };

  async function reloadWhenAvailable() {
    try {
      const response = await fetch("index.html", { cache: "no-cache" });
      if (response.ok) return location.reload();
    } catch { /* not available yet */ }
    return setTimeout(reloadWhenAvailable, RETRY_MS);
  }

  import("./app.js").catch((error) => {
    console.warn(error);
    showText("The gateway does not respond; retrying …");
    setTimeout(reloadWhenAvailable, RETRY_MS);
  });
})();
