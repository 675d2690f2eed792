// The live log of a workload. The page keeps a limited number of chunks.

import { useEffect, useRef, useState } from "preact/hooks";
import { queryOf, segment } from "../api/client";
import { handled } from "../api/problem";
import { pause, stream, untilVisible, whileVisible } from "../api/stream";

const INITIAL_LINES = 500, CHUNKS_MAX = 2000, RETRY_MS = 2000;

export function Log({ id }: { id: string }) {
  const box = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  const [state, setState] = useState("");
  const scrollToEnd = () => { if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight; };
  useEffect(() => {
    const stop = new AbortController();
    void followLog(id, stop.signal, setState, (chunk, isFirst) => {
      const pre = box.current;
      if (!pre) return;
      if (isFirst) pre.replaceChildren(); // a new stream repeats the last lines
      pre.append(document.createTextNode(chunk));
      while (pre.childNodes.length > CHUNKS_MAX) pre.firstChild?.remove();
      scrollToEnd();
    });
    return () => stop.abort();
  }, [id]);
  return (
    <div>
      <p class="row">
        <label><input type="checkbox" defaultChecked onChange={(event) => { follows.current = event.currentTarget.checked; scrollToEnd(); }} /> Follow</label>
        <span class="quiet">{state}</span>
      </p>
      <pre class="log" role="log" tabIndex={0} aria-label={`Log of ${id}`} ref={box} />
    </div>
  );
}

async function followLog(
  id: string, signal: AbortSignal, setState: (text: string) => void, onChunk: (chunk: string, isFirst: boolean) => void,
): Promise<void> {
  const path = `/workloads/${segment(id)}/logs?${queryOf({ follow: true, tail: INITIAL_LINES })}`;
  while (!signal.aborted) {
    await handled(async () => {
      let isFirst = true;
      for await (const chunk of stream(path, whileVisible(signal))) {
        onChunk(chunk, isFirst);
        isFirst = false;
        setState("live");
      }
      if (!signal.aborted) setState("The log has ended; retrying …");
    }, (problem) => { if (!signal.aborted) setState(problem.status ? problem.message : "The log was interrupted; retrying …"); });
    await pause(RETRY_MS, signal);
    await untilVisible(signal);
  }
}
