// The live logs of workloads together: search, times, services, pause and download. A limited number of lines is kept.

import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { dateTime } from "../../format";
import { followLog } from "./follow";
import { asText, colourOf, highlighted, Lines, matches, nameOf, type Line } from "./lines";

const DRAW_EVERY_MS = 200;
const TAILS = [100, 500, 2000];
const SINCE: [seconds: number, text: string][] = [[0, "all"], [300, "5 minutes"], [3600, "1 hour"], [86_400, "1 day"]];

export interface LogSource {
  id: string;
  isVm?: boolean; // its log has no times
}

interface Options {
  q: string;
  hasTimes: boolean;
  tail: number;
  since: number;
  hidden: Set<string>; // names that are not shown
}

export function Logs({ sources }: { sources: LogSource[] }) {
  const lines = useRef(new Lines());
  const box = useRef<HTMLDivElement>(null);
  const [states, setStates] = useState<Record<string, string>>({});
  const [options, setOptions] = useState<Options>({ q: "", hasTimes: false, tail: 500, since: 0, hidden: new Set() });
  const [follows, setFollows] = useState(true);
  const [paused, setPaused] = useState<Line[] | null>(null); // the lines at the time of the pause
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const key = JSON.stringify([sources, options.tail, options.since]);
  useEffect(() => {
    const stop = new AbortController();
    lines.current = new Lines();
    let timer = 0;
    const later = () => { timer ||= window.setTimeout(() => { timer = 0; draw(undefined); }, DRAW_EVERY_MS); };
    for (const { id, isVm = false } of sources) {
      void followLog(id, { tail: options.tail, sinceSeconds: options.since, hasTimes: !isVm }, stop.signal, {
        onStart: () => lines.current.drop(id),
        onChunk: (chunk) => { lines.current.add(id, chunk); later(); },
        onState: (text) => setStates((old) => (old[id] === text ? old : { ...old, [id]: text })),
      });
    }
    return () => { stop.abort(); clearTimeout(timer); };
  }, [key]);
  const hasSeveral = sources.length > 1;
  const all = paused ?? lines.current.all;
  const names = [...new Set(lines.current.all.map((line) => nameOf(line, hasSeveral)))].filter(Boolean).sort();
  const found = all.filter((line) => !options.hidden.has(nameOf(line, hasSeveral)) && matches(line, options.q));
  useEffect(() => { if (follows && !paused && box.current) box.current.scrollTop = box.current.scrollHeight; });
  const toggle = (name: string) => setOptions((old) => {
    const hidden = new Set(old.hidden);
    if (!hidden.delete(name)) hidden.add(name);
    return { ...old, hidden };
  });
  return (
    <div>
      <div class="row filters">
        <label><span>Search the log</span><input type="search" name="log-search" value={options.q} autocomplete="off" onInput={(event) => setOptions({ ...options, q: event.currentTarget.value })} /></label>
        <label><span>Lines</span>
          <select name="tail" value={options.tail} onChange={(event) => setOptions({ ...options, tail: Number(event.currentTarget.value) })}>{TAILS.map((tail) => <option value={tail} key={tail}>last {tail}</option>)}</select>
        </label>
        {!sources.some(({ isVm }) => isVm) && (
          <label><span>Since</span>
            <select name="since" value={options.since} onChange={(event) => setOptions({ ...options, since: Number(event.currentTarget.value) })}>{SINCE.map(([seconds, text]) => <option value={seconds} key={seconds}>{text}</option>)}</select>
          </label>
        )}
        <label><input type="checkbox" checked={options.hasTimes} onChange={(event) => setOptions({ ...options, hasTimes: event.currentTarget.checked })} /> Times</label>
        <label><input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} /> Follow</label>
        <button type="button" onClick={() => setPaused(paused ? null : [...lines.current.all])}>{paused ? "Continue" : "Pause"}</button>
        <button type="button" disabled={!found.length} onClick={() => download(sources, asText(found, hasSeveral))}>Download</button>
      </div>
      {names.length > 1 && (
        <p class="row">{names.map((name) => <label key={name} class={`log-name colour-${colourOf(name)}`}><input type="checkbox" checked={!options.hidden.has(name)} onChange={() => toggle(name)} /> {name}</label>)}</p>
      )}
      <p class="quiet small">{paused ? "Paused. " : ""}{options.q && `${found.length} of ${all.length} lines. `}{stateText(states, sources)}</p>
      <div class="log" role="log" tabIndex={0} aria-label={`Log of ${sources.map(({ id }) => id).join(", ")}`} ref={box}>
        {found.map((line) => <LineView key={line.number} line={line} name={nameOf(line, hasSeveral)} options={options} />)}
      </div>
    </div>
  );
}

function LineView({ line, name, options: { q, hasTimes } }: { line: Line; name: string; options: Options }) {
  return (
    <div class={line.isError ? "log-line error" : "log-line"}>
      {hasTimes && line.at && <time dateTime={line.at} title={line.at}>{dateTime(line.at)} </time>}
      {name && <span class={`log-name colour-${colourOf(name)}`}>{name} </span>}
      {q ? highlighted(line.text, q).map((part, index) => (index % 2 ? <mark key={index}>{part}</mark> : part)) : line.text}
    </div>
  );
}

const stateText = (states: Record<string, string>, sources: LogSource[]): string =>
  sources.length === 1 ? states[sources[0]?.id ?? ""] ?? "" : sources.map(({ id }) => `${id}: ${states[id] ?? "connecting …"}`).join("; ");

function download(sources: LogSource[], text: string): void {
  const link = document.createElement("a");
  const url = URL.createObjectURL(new Blob([text, "\n"], { type: "text/plain" }));
  link.href = url;
  link.download = `${sources.map(({ id }) => id).join("_").replace(/[^\w.-]/g, "_").slice(0, 100)}.log`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
