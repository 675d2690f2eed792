// Responses that do not end: server-sent events and logs, as text. EventSource cannot send an Authorization header.

import { send, urlOf } from "./client";
import { Problem } from "./problem";

export interface Message {
  id: string;
  event: string;
  data: string;
}

/** The chunks of a response as text, until it ends or `signal` aborts. */
export async function* stream(path: string, signal: AbortSignal, headers: Record<string, string> = {}): AsyncGenerator<string> {
  let reader: ReadableStreamDefaultReader<string> | undefined;
  try {
    const response = await send(urlOf(path), { signal, headers: { Accept: "*/*", ...headers } });
    if (!response.body) return;
    reader = response.body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw error instanceof Problem ? error : new Problem(0, "The connection was lost.");
  } finally {
    reader?.cancel().catch(() => {});
  }
}

/** Parses chunks of text into messages. Comments, which only keep the connection open, are skipped. */
export async function* messages(chunks: AsyncIterable<string>): AsyncGenerator<Message> {
  let rest = "";
  for await (const chunk of chunks) {
    const blocks = (rest + chunk).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const message = parse(block);
      if (message) yield message;
    }
  }
}

function parse(block: string): Message | null {
  const message: Message = { id: "", event: "", data: "" };
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "data") message.data += message.data ? `\n${value}` : value;
    else if (name === "id" || name === "event") message[name] = value;
  }
  return message.data || message.id ? message : null;
}

/** A signal that also aborts when the page is hidden: browsers limit the connections of all tabs together. */
export function whileVisible(signal: AbortSignal): AbortSignal {
  const hidden = new AbortController();
  document.addEventListener("visibilitychange", () => { if (document.hidden) hidden.abort(); }, { signal: AbortSignal.any([hidden.signal, signal]) });
  return AbortSignal.any([signal, hidden.signal]);
}

/** Resolves when the page is visible or `signal` aborts. */
export function untilVisible(signal: AbortSignal): Promise<unknown> {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true, signal });
    signal.addEventListener("abort", resolve, { once: true });
  });
}

/** Resolves after `ms`, or when `signal` aborts. */
export const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const done = () => { clearTimeout(timer); signal.removeEventListener("abort", done); resolve(); };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
