// The lines of logs: decoded, ordered by time, limited in number and length, and searched. Without a browser.

import type { LogChunk } from "../../api/schema";
import { bytesOf } from "../../api/exec";

export const LINES_MAX = 2000;
const LINE_CHARACTERS_MAX = 8192;
const STAMP = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) ?/;
// Escape sequences (CSI, OSC and others), then control characters except the tab.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

export interface Line {
  number: number; // in order of arrival
  at: string; // empty: the log has no times
  source: string; // a workload
  service: string;
  isError: boolean; // written to stderr
  text: string;
}

/** Text as it is shown: without escape sequences, control characters and marks that change its direction. */
export const shown = (text: string): string => text.replace(ESCAPES, "").replace(CONTROLS, "");

interface Part {
  decoder: TextDecoder;
  rest: string;
}

/** The last lines of several logs. */
export class Lines {
  all: Line[] = [];
  private counted = 0;
  private readonly parts = new Map<string, Part>();

  add(source: string, chunk: LogChunk): void {
    const key = JSON.stringify([source, chunk.service ?? "", chunk.stream ?? ""]);
    const part = this.parts.get(key) ?? { decoder: new TextDecoder(), rest: "" };
    this.parts.set(key, part);
    const pieces = (part.rest + part.decoder.decode(bytesOf(chunk.data ?? ""), { stream: true })).split("\n");
    part.rest = pieces.pop() ?? "";
    if (part.rest.length > LINE_CHARACTERS_MAX) {
      pieces.push(part.rest);
      part.rest = "";
    }
    for (const piece of pieces) this.put(source, chunk, piece);
    if (this.all.length > LINES_MAX) this.all = this.all.slice(-LINES_MAX);
  }

  /** Forgets one log, which is read again from its last lines. */
  drop(source: string): void {
    this.all = this.all.filter((line) => line.source !== source);
    for (const key of [...this.parts.keys()]) if ((JSON.parse(key) as string[])[0] === source) this.parts.delete(key);
  }

  private put(source: string, { service = "", stream }: LogChunk, piece: string): void {
    const [stamp = "", at = ""] = STAMP.exec(piece) ?? [];
    const text = shown(piece.slice(stamp.length, stamp.length + LINE_CHARACTERS_MAX));
    const line = { number: (this.counted += 1), at, source, service, isError: stream === "stderr", text };
    // Lines of several logs arrive almost in order.
    let place = this.all.length;
    while (at && place > 0 && (this.all[place - 1]?.at ?? "") > at) place -= 1;
    this.all.splice(place, 0, line);
  }
}

export const matches = (line: Line, wanted: string): boolean => !wanted || line.text.toLowerCase().includes(wanted.toLowerCase());

/** The text in parts; those with an odd index match. */
export function highlighted(text: string, wanted: string): string[] {
  if (!wanted) return [text];
  const parts: string[] = [], lower = text.toLowerCase(), searched = wanted.toLowerCase();
  if (lower.length !== text.length) return [text]; // some letters change their length in lower case
  let from = 0;
  for (let at = lower.indexOf(searched); at >= 0; at = lower.indexOf(searched, from)) {
    parts.push(text.slice(from, at), text.slice(at, at + searched.length));
    from = at + searched.length;
  }
  return [...parts, text.slice(from)];
}

export const nameOf = ({ source, service }: Line, hasSeveral: boolean): string =>
  hasSeveral ? (service ? `${source}/${service}` : source) : service;

/** One of six colours of a name, the same each time. */
export const colourOf = (name: string): number => [...name].reduce((sum, one) => (sum * 31 + (one.codePointAt(0) ?? 0)) % 9973, 7) % 6;

export const asText = (lines: Line[], hasSeveral: boolean): string =>
  lines.map((line) => [line.at, nameOf(line, hasSeveral), line.text].filter(Boolean).join(" ")).join("\n");
