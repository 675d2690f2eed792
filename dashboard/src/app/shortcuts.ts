// Keyboard shortcuts: / goes to the search field of the page, Escape leaves it, ? shows them.

import { useEffect } from "preact/hooks";
import { confirm } from "../components/dialog";

const KEYS = "/ goes to the search field of the page. Escape leaves a field and closes dialogs. Tab goes to the next control. ? shows this list.";
const FIELDS = /^(INPUT|TEXTAREA|SELECT)$/;

export function useShortcuts(): void {
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

function onKey(event: KeyboardEvent): void {
  const target = event.composedPath()[0] as HTMLElement; // inside of a shadow root, too
  if (event.key === "/" && !isTyping(target) && !event.ctrlKey && !event.metaKey) {
    const filter = document.querySelector<HTMLInputElement>("[data-filter]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
    filter.select();
  } else if (event.key === "?" && !isTyping(target) && !document.querySelector("dialog")) {
    event.preventDefault();
    void confirm({ title: "Keyboard shortcuts", text: KEYS, verb: "Close", isInfo: true });
  } else if (event.key === "Escape" && target.matches("[data-filter]")) {
    target.blur();
  }
}

const isTyping = (target: HTMLElement): boolean => FIELDS.test(target.tagName) || target.isContentEditable;
