// An instant as an age, updated every second without rendering the page again.

import { useLayoutEffect, useRef } from "preact/hooks";
import { ago, dateTime } from "../format";

const shown = new Set<HTMLElement>();

/** Called every second. */
export function tick(): void {
  for (const element of shown) update(element);
}

function update(element: HTMLElement): void {
  const text = ago(element.dataset["at"]);
  if (element.textContent !== text) element.textContent = text;
}

export function When({ at }: { at: string | null | undefined }) {
  const ref = useRef<HTMLTimeElement>(null);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    shown.add(element);
    update(element);
    return () => { shown.delete(element); };
  }, [at]);
  return <time ref={ref} dateTime={at ?? undefined} data-at={at ?? ""} title={dateTime(at)} />;
}
