// A session of a command or a console over a WebSocket.
//
// Browsers cannot set headers on a WebSocket, so the token is the name of a second subprotocol: unlike a part of the
// URL, it is in no log and in no history. Frames are JSON; the close code is 1000, or 4000 plus an HTTP status.

import { segment, urlOf } from "./client";
import type { ExecInput, ExecOutput, ExecStart } from "./schema";
import { token } from "./session";

const PROTOCOL = "persys.exec.v1";
const CHUNK_BYTES = 32 * 1024;
const STATUS_BASE = 4000;

export interface Ending {
  code: number | null; // the exit code; null: the session ended otherwise
  reason: string;
}

export interface SessionListener {
  onStart: () => void;
  onOutput: (data: Uint8Array) => void;
  onEnd: (ending: Ending) => void;
}

export class ExecSession {
  private readonly socket: WebSocket;
  private exitCode: number | null = null;
  private hasStarted = false;

  constructor(id: string, start: ExecStart, listener: SessionListener) {
    this.socket = new WebSocket(socketUrl(id), protocols(token.get()));
    this.socket.addEventListener("open", () => this.send({ start }));
    this.socket.addEventListener("message", ({ data }) => this.receive(JSON.parse(String(data)) as ExecOutput, listener));
    this.socket.addEventListener("close", ({ code, reason }) => listener.onEnd(endingOf({ code, reason, exitCode: this.exitCode, hasStarted: this.hasStarted })));
  }

  write(data: Uint8Array): void {
    for (let at = 0; at < data.length; at += CHUNK_BYTES) this.send({ stdin: base64Of(data.subarray(at, at + CHUNK_BYTES)) });
  }

  resize(rows: number, columns: number): void {
    if (this.hasStarted) this.send({ resize: { rows, columns } });
  }

  close(): void {
    this.socket.close();
  }

  private send(input: ExecInput): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(input));
  }

  private receive(output: ExecOutput, listener: SessionListener): void {
    if (!this.hasStarted) {
      this.hasStarted = true;
      listener.onStart();
    }
    for (const data of [output.stdout, output.stderr]) if (data) listener.onOutput(bytesOf(data));
    if (output.exit) this.exitCode = output.exit.code ?? 0;
  }
}

const socketUrl = (id: string): string => urlOf(`/workloads/${segment(id)}/exec`);

export const protocols = (secret: string): string[] => (secret ? [PROTOCOL, `bearer.${secret}`] : [PROTOCOL]);

interface Closed {
  code: number;
  reason: string;
  exitCode: number | null;
  hasStarted: boolean;
}

export function endingOf({ code, reason, exitCode, hasStarted }: Closed): Ending {
  if (exitCode !== null) return { code: exitCode, reason: `The command exited with code ${exitCode}.` };
  if (code > STATUS_BASE) return { code: null, reason: reason || `The gateway ended the session (${code - STATUS_BASE}).` };
  if (code === 1000 || code === 1005) return { code: null, reason: "The session was closed." };
  if (!hasStarted) return { code: null, reason: "The session could not be opened: the gateway refused it or does not respond." };
  return { code: null, reason: "The connection was lost." };
}

export const bytesOf = (text: string): Uint8Array => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
export const base64Of = (data: Uint8Array): string => btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(""));

/** The words of a command line, with quotes as in a shell; null: a quote is not closed. */
export function commandOf(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null, quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const one = line[at] ?? "";
    if (quote) {
      if (one === quote) quote = "";
      else if (one === "\\" && quote === '"' && at + 1 < line.length) { at += 1; word += line[at] ?? ""; }
      else word += one;
    } else if (one === "'" || one === '"') {
      quote = one;
      word ??= "";
    } else if (/\s/.test(one)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (one === "\\" && at + 1 < line.length) {
      at += 1;
      word = (word ?? "") + (line[at] ?? "");
    } else {
      word = (word ?? "") + one;
    }
  }
  if (word !== null) words.push(word);
  return quote ? null : words;
}
