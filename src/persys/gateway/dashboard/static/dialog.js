// Questions before deeds, and what came of them. The browser's own dialog keeps the focus inside and closes on Escape.

import { Problem } from "./api.js";
import { announce, h } from "./dom.js";
import { refresh } from "./live.js";

/** Resolves to what the form holds, or to null when the person thought better of it. */
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
    let answer = null;
    form.onsubmit = () => { answer = Object.fromEntries(new FormData(form)); };
    box.addEventListener("close", () => { box.remove(); resolve(answer); });
    document.body.append(box);
    box.showModal();
  });
}

/** Do it, and say how it went, to eyes and ears. Returns whether it was done. */
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

export function notice(text, isTrouble) {
  document.querySelector(".notice")?.remove();
  const close = h("button", { type: "button", "aria-label": "Close the message", onclick: () => box.remove() }, "×");
  const box = h("div", { class: isTrouble ? "notice bad" : "notice" }, h("span", {}, text), close);
  document.body.append(box);
  announce(text);
  if (!isTrouble) setTimeout(() => box.remove(), NOTICE_MS);
}
