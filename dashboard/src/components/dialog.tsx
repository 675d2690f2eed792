// Confirmation dialogs and result messages. The dialog element of the browser traps the focus and closes on Escape.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { handled } from "../api/problem";
import { announce } from "../app/announce";
import { refresh } from "../state/sync";

export interface Question {
  title: string;
  text: ComponentChildren;
  verb: string;
  danger?: boolean;
  isInfo?: boolean; // there is nothing to cancel
  fields?: ComponentChildren;
}

type Answer = Record<string, string> | null;
interface Asked extends Question { resolve: (answer: Answer) => void }
interface Message { text: string; isError: boolean }

const NOTICE_MS = 6000;
let show: { ask: (asked: Asked) => void; tell: (message: Message) => void } | null = null;

/** Resolves to the values of the form, or to null if it was cancelled. */
export const confirm = (question: Question): Promise<Answer> =>
  new Promise((resolve) => (show ? show.ask({ ...question, resolve }) : resolve(null)));

export function notice(text: string, isError: boolean): void {
  show?.tell({ text, isError });
  announce(text);
}

/** Performs `work`, then shows and announces the result. Returns whether it succeeded. */
export async function perform(work: () => Promise<unknown>, done: string): Promise<boolean> {
  const succeeded = await handled(async () => { await work(); }, (problem) => notice(problem.message, true));
  if (succeeded) {
    notice(done, false);
    refresh();
  }
  return succeeded;
}

export async function performConfirmed(question: Question, work: (answer: Record<string, string>) => Promise<unknown>, done: string): Promise<boolean> {
  const answer = await confirm(question);
  return answer !== null && perform(() => work(answer), done);
}

/** The place of dialogs and messages, rendered once beside the page. */
export function Dialogs() {
  const [asked, ask] = useState<Asked | null>(null);
  const [message, tell] = useState<Message | null>(null);
  useLayoutEffect(() => {
    show = { ask, tell };
    return () => { show = null; };
  }, []);
  useEffect(() => {
    if (!message || message.isError) return undefined;
    const timer = setTimeout(() => tell(null), NOTICE_MS);
    return () => clearTimeout(timer);
  }, [message]);
  return (
    <>
      {asked && <Dialog asked={asked} onClose={(answer) => { ask(null); asked.resolve(answer); }} />}
      {message && (
        <div class={message.isError ? "notice bad" : "notice"}>
          <span>{message.text}</span>
          <button type="button" aria-label="Close message" onClick={() => tell(null)}>×</button>
        </div>
      )}
    </>
  );
}

function Dialog({ asked, onClose }: { asked: Asked; onClose: (answer: Answer) => void }) {
  const box = useRef<HTMLDialogElement>(null);
  const answer = useRef<Answer>(null);
  useLayoutEffect(() => box.current?.showModal(), []);
  const submit = (event: SubmitEvent) => {
    const data = new FormData(event.currentTarget as HTMLFormElement);
    answer.current = Object.fromEntries([...data].map(([name, value]) => [name, String(value)]));
  };
  return (
    <dialog ref={box} aria-labelledby="dialog-title" aria-describedby="dialog-text" onClose={() => onClose(answer.current)}>
      <form method="dialog" onSubmit={submit}>
        <h2 id="dialog-title">{asked.title}</h2>
        <p id="dialog-text">{asked.text}</p>
        {asked.fields}
        <div class="row end">
          {!asked.isInfo && <button type="button" onClick={() => box.current?.close()}>Cancel</button>}
          <button type="submit" class={asked.danger ? "danger" : "primary"}>{asked.verb}</button>
        </div>
      </form>
    </dialog>
  );
}
