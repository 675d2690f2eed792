// Confirmation dialogs and result messages. The dialog element of the browser traps the focus and closes on Escape.

import { Problem } from "./api.js";
import { announce, h } from "./dom.js";
import { refresh } from "./sync.js";

/** Resolves to the values of the form, or to null if it was cancelled. */
export function confirm({ title, text, verb, danger = false, fields = [] }) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      h("p", { id: "dialog-text" }, text),
      fields,
      h("div", { class: "row end" },
        h("button", { type: "button", onclick: () => box.close() }, "Cancel"),
        h("button", { type: "submit", class: danger ? "danger" : "primary" }, verb)));
    const box = h("dialog", { "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" }, form);
    let values = null;
    form.onsubmit = () => { values = Object.fromEntries(new FormData(form)); };
    box.addEventListener("close", () => { box.remove(); resolve(values); });
    document.body.append(box);
    box.showModal();
  });
}

/** Performs `work`, then shows and announces the result. Returns whether it succeeded. */
export async function perform(work, done) {
  try {
    await work();
    notice(done, false);
    refresh();
    return true;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    notice(problem.message, true);
    return false;
  }
}

const NOTICE_MS = 6000;

export function notice(text, isError) {
  document.querySelector(".notice")?.remove();
  const close = h("button", { type: "button", "aria-label": "Close message", onclick: () => box.remove() }, "×");
  const box = h("div", { class: isError ? "notice bad" : "notice" }, h("span", {}, text), close);
  document.body.append(box);
  announce(text);
  if (!isError) setTimeout(() => box.remove(), NOTICE_MS);
}
