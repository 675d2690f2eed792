// Load the pages, and if that breaks off, load them again as soon as the gateway answers. No module: it has to
// be there when modules cannot be had.
(() => {
  const AGAIN_MS = 1000;
  const say = (text) => { document.getElementById("main").textContent = text; };

  async function reloadWhenItAnswers() {
    try {
      const answer = await fetch("index.html", { cache: "no-cache" });
      if (answer.ok) return location.reload();
    } catch { /* not yet */ }
    return setTimeout(reloadWhenItAnswers, AGAIN_MS);
  }

  import("./app.js").catch((error) => {
    console.warn(error);
    say("The gateway does not answer; retrying …");
    setTimeout(reloadWhenItAnswers, AGAIN_MS);
  });
})();
