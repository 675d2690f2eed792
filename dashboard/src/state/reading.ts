// Reads what only one page needs.

import { useEffect, useRef, useState } from "preact/hooks";
import { handled, type Problem } from "../api/problem";

export interface Reading<T> {
  value: T | null; // null: not read yet
  problem: Problem | null; // of the last attempt
  reload: () => void;
}

/** Reads when the page is opened, when `version` changes, and every `everyMs` if it is given. The value stays while it
 * is read again, and when that fails. */
export function useReading<T>(read: () => Promise<T>, version: unknown = "", everyMs = 0): Reading<T> {
  const [value, setValue] = useState<T | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [attempt, setAttempt] = useState(0);
  const latest = useRef(0);
  useEffect(() => {
    const number = (latest.current += 1);
    void handled(async () => {
      const found = await read();
      if (number !== latest.current) return;
      setValue(found);
      setProblem(null);
    }, (caught) => { if (number === latest.current) setProblem(caught); });
  }, [version, attempt]);
  useEffect(() => () => { latest.current = -1; }, []);
  useEffect(() => {
    if (!everyMs) return undefined;
    const timer = setInterval(() => { if (!document.hidden) setAttempt((count) => count + 1); }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return { value, problem, reload: () => setAttempt((count) => count + 1) };
}
