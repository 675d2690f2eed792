// Keeps the state in sync with the cluster: events are streamed, other data is polled every few seconds, and
// everything is read again after an outage of the gateway or the scheduler. Only data that the current page needs is
// requested.

import { call, clusters, events as readEventList, pages } from "../api/client";
import { Problem } from "../api/problem";
import type { EventView, NodeView, WorkloadView } from "../api/schema";
import { messages, pause, stream, untilVisible, whileVisible } from "../api/stream";
import { addEvents, change, dropWorkload, indexed, putWorkload, reset, state, type LinkState, type State } from "./store";

/** The parts that a page shows. */
export interface Needs {
  summary?: boolean;
  capacity?: boolean;
  nodes?: boolean;
  workloads?: boolean;
  workload?: string; // an id
}

const POLL_MS = 4000, DEBOUNCE_MS = 250;
const BACKOFF_MS = [500, 1000, 2000, 3000];
const INITIAL_EVENTS = 200;
const ONE_BY_ONE_MAX = 16; // above this number of changed workloads, the whole list is read
// The tolerance of a node loss does not depend on the spec, but the API requires one.
const ANY_SPEC = { spec: { type: "container", container: { image: "any" } } };
const NODE_MS = 2; // per node: large lists are read less often
const LIST_EVERY_MS = 60_000, LIST_AT_MOST_EVERY_MS = 3000, CAPACITY_EVERY_MS = 20_000;

type Part = "mode" | "summary" | "nodes" | "capacity" | "workload" | "workloads";

let session = new AbortController();
let needs: Needs = {};
let failures = 0;
let readAt: Partial<Record<Part, number>> = {};
const changed = new Set<string>();
let timer = 0;

export function setNeeds(parts: Needs): void {
  needs = parts;
  void poll(session.signal);
}

/** Starts a new session: at load, after sign-in, and for another cluster. */
export function restart(): void {
  session.abort();
  session = new AbortController();
  failures = 0;
  readAt = {};
  changed.clear();
  reset();
  void readIdentity(session.signal);
  void pollLoop(session.signal);
  void watchEvents(session.signal);
}

/** Polls now, after a change by the user. */
export function refresh(): void {
  readAt.nodes = 0;
  void poll(session.signal);
}

const backoff = (): number => BACKOFF_MS[Math.min(failures, BACKOFF_MS.length) - 1] ?? POLL_MS;

async function readIdentity(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const [identity, list] = await Promise.all([call("GetIdentity", {}), clusters()]);
      keep(signal, { identity, clusters: list });
      return;
    } catch (error) {
      onProblem(signal, error);
      await pause(BACKOFF_MS.at(-1) ?? POLL_MS, signal);
    }
  }
}

async function pollLoop(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await poll(signal);
    await pause(backoff(), signal);
    await untilVisible(signal);
  }
}

async function poll(signal: AbortSignal): Promise<void> {
  const results = await Promise.allSettled(dueParts(signal));
  if (signal.aborted) return;
  const failed = results.find((result) => result.status === "rejected");
  if (failed) onProblem(signal, failed.reason);
  else onResponse();
}

/** Starts to read each part that is needed and due. */
function dueParts(signal: AbortSignal): Promise<void>[] {
  const age = (part: Part) => Date.now() - (readAt[part] ?? 0);
  const started: Promise<void>[] = [];
  const start = (part: Part, work: () => Promise<void>) => { readAt[part] = Date.now(); started.push(work()); };
  const { workload } = needs;
  start("mode", async () => keep(signal, { mode: await call("GetMode", {}) }));
  if (needs.summary) start("summary", async () => keep(signal, { summary: await call("GetClusterSummary", {}) }));
  if (needs.nodes && age("nodes") >= state.nodes.size * NODE_MS) start("nodes", () => readNodes(signal));
  if (needs.capacity && age("capacity") > CAPACITY_EVERY_MS) {
    start("capacity", async () => keep(signal, { capacity: await call("GetCapacity", ANY_SPEC) }));
  }
  if (workload) start("workload", () => readWorkload(signal, workload));
  if (needs.workloads && age("workloads") > LIST_EVERY_MS) start("workloads", () => readWorkloads(signal));
  return started;
}

function keep(signal: AbortSignal, values: Partial<State>): void {
  if (!signal.aborted) change(values);
}

async function readNodes(signal: AbortSignal): Promise<void> {
  const nodes = await pages<NodeView>("ListNodes", "nodes");
  keep(signal, { nodes: new Map(nodes.map((node) => [node.node_id ?? "", node])), nodesRead: true });
}

async function readWorkloads(signal: AbortSignal): Promise<void> {
  readAt.workloads = Date.now();
  const isFirst = !state.listed;
  const take = (views: WorkloadView[]) =>
    keep(signal, { workloads: new Map(views.map((view) => [view.workload_id ?? "", indexed(view)])), changes: state.changes + 1 });
  try {
    take(await pages<WorkloadView>("ListWorkloads", "workloads", isFirst ? take : undefined));
    keep(signal, { listed: true });
  } catch (error) {
    readAt.workloads = 0;
    throw error;
  }
}

async function readWorkload(signal: AbortSignal, id: string): Promise<void> {
  try {
    const { workload } = await call("GetWorkload", { workload_id: id });
    if (workload && !signal.aborted) putWorkload(workload);
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 404) throw error;
    if (!signal.aborted) dropWorkload(id);
  }
}

function onResponse(): void {
  const was = state.link.state;
  failures = 0;
  change({ asOf: Date.now() });
  if (was === "live") return;
  change({ link: { state: "live", detail: "", since: Date.now() } });
  if (was !== "connecting") {
    readAt = {};
    void poll(session.signal);
  }
}

function onProblem(signal: AbortSignal, error: unknown): void {
  if (signal.aborted) return;
  if (!(error instanceof Problem)) throw error;
  if (error.status === 429) return; // rate limit: the shown data is still valid
  failures += 1;
  const kind = kindOf(error);
  const { link } = state;
  change({ link: { state: kind, detail: error.message, since: link.state === kind ? link.since : Date.now() } });
}

function kindOf({ status, isUnavailable }: Problem): LinkState {
  if (status === 401 || status === 403) return "denied";
  if (!isUnavailable) return "error";
  return status === 0 ? "gateway" : "scheduler";
}

async function watchEvents(signal: AbortSignal): Promise<void> {
  let after: string | null = null;
  while (!signal.aborted) {
    try {
      after ??= await readEvents(signal);
      const headers: Record<string, string> = { Accept: "text/event-stream", "Last-Event-ID": after };
      for await (const message of messages(stream("/events/watch", whileVisible(signal), headers))) {
        if (signal.aborted) return;
        after = message.id || after;
        const body = JSON.parse(message.data || "{}");
        if (message.event === "problem") throw new Problem(body.status, body.detail);
        onEvent(signal, body);
      }
    } catch (error) {
      if (!(error instanceof Problem)) {
        if (!signal.aborted) throw error;
      } else if (error.status === 410) { // the missed events are no longer stored: everything is read again
        after = null;
        readAt = {};
      }
    }
    // The end of a stream is the first sign of an outage.
    if (!signal.aborted && !document.hidden) void poll(signal);
    await pause(BACKOFF_MS[1] ?? POLL_MS, signal);
    await untilVisible(signal);
  }
}

async function readEvents(signal: AbortSignal): Promise<string> {
  const { events, last } = await readEventList({ limit: INITIAL_EVENTS });
  if (!signal.aborted) {
    change({ events: [], eventsRead: true });
    addEvents(events);
  }
  return last;
}

function onEvent(signal: AbortSignal, event: EventView): void {
  if (!event.kind) return; // a bookmark
  addEvents([event]);
  changed.add(event.workload_id ?? "");
  if (timer) return;
  timer = window.setTimeout(() => { timer = 0; void readAffected(signal); }, DEBOUNCE_MS);
}

/** Reads the workloads of the latest events again. */
async function readAffected(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const ids = [...changed].filter(Boolean);
  changed.clear();
  try {
    if (needs.workloads && state.listed) await readChanged(signal, ids);
    await poll(signal);
  } catch (error) {
    onProblem(signal, error);
  }
}

async function readChanged(signal: AbortSignal, ids: string[]): Promise<void> {
  if (ids.length <= ONE_BY_ONE_MAX) {
    await Promise.all(ids.map((id) => readWorkload(signal, id)));
  } else if (Date.now() - (readAt.workloads ?? 0) > LIST_AT_MOST_EVERY_MS) {
    await readWorkloads(signal);
  } else {
    readAt.workloads = Math.min(readAt.workloads ?? 0, Date.now() - LIST_EVERY_MS + LIST_AT_MOST_EVERY_MS);
  }
}
