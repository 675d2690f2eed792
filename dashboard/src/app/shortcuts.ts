// Keyboard shortcuts: / goes to the search field of the page, Escape leaves it.

import { useEffect } from "preact/hooks";

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
  } else if (event.key === "Escape" && target.matches("[data-filter]")) {
    target.blur();
  }
}

const isTyping = (target: HTMLElement): boolean => FIELDS.test(target.tagName) || target.isContentEditable;
