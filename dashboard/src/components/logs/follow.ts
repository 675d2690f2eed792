// Follows the log of a workload; starts again after interruptions.

import { queryOf, segment } from "../../api/client";
import { handled, Problem } from "../../api/problem";
import type { LogChunk } from "../../api/schema";
import { pause, stream, untilVisible, whileVisible } from "../../api/stream";

const RETRY_MS = 2000;

export interface LogQuery {
  tail: number;
  sinceSeconds: number; // 0: all
  hasTimes: boolean; // the log of a VM has none
}

interface Followed {
  onStart: () => void; // the last lines are read again
  onChunk: (chunk: LogChunk) => void;
  onState: (text: string) => void;
}

export async function followLog(id: string, query: LogQuery, signal: AbortSignal, { onStart, onChunk, onState }: Followed): Promise<void> {
  while (!signal.aborted) {
    await handled(async () => {
      let isFirst = true;
      for await (const chunk of chunks(id, query, whileVisible(signal))) {
        if (signal.aborted) return;
        if (isFirst) onStart();
        isFirst = false;
        onChunk(chunk);
        onState("live");
      }
      if (!signal.aborted) onState("The log has ended; retrying …");
    }, (problem) => { if (!signal.aborted) onState(problem.status ? problem.message : "The log was interrupted; retrying …"); });
    await pause(RETRY_MS, signal);
    await untilVisible(signal);
  }
}

/** One JSON message per line. An empty one keeps the connection open. */
async function* chunks(id: string, { tail, sinceSeconds, hasTimes }: LogQuery, signal: AbortSignal): AsyncGenerator<LogChunk> {
  const since = sinceSeconds && hasTimes ? new Date(Date.now() - sinceSeconds * 1000).toISOString() : undefined;
  const fields = { follow: true, tail, since, timestamps: hasTimes || undefined };
  let rest = "";
  for await (const text of stream(`/workloads/${segment(id)}/logs?${queryOf(fields)}`, signal, { Accept: "application/x-ndjson" })) {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.filter(Boolean)) {
      const { problem, ...chunk } = JSON.parse(line) as LogChunk & { problem?: { status: number; detail: string } };
      if (problem) throw new Problem(problem.status, problem.detail);
      if (chunk.data) yield chunk;
    }
  }
}
