// Keeps the state in sync with the cluster: events are streamed, other data is polled every few seconds, and
// everything is read again after an outage of the gateway or the scheduler. Only data that the current page needs is
// requested.

import * as api from "./api.js";
import { messages } from "./sse.js";
import { addEvents, change, dropWorkload, indexed, putWorkload, reset, state } from "./state.js";

const POLL_MS = 4000, DEBOUNCE_MS = 250;
const BACKOFF_MS = [500, 1000, 2000, 3000];
const INITIAL_EVENTS = 200;
const ONE_BY_ONE_MAX = 16; // above this number of changed workloads, the whole list is read
// The tolerance of a node loss does not depend on the spec, but the API requires one.
const ANY_SPEC = { spec: { type: "container", container: { image: "any" } } };
const NODE_MS = 2; // per node: large lists are read less often
const LIST_EVERY_MS = 60000, LIST_AT_MOST_EVERY_MS = 3000, CAPACITY_EVERY_MS = 20000;

let session = new AbortController();
let needs = {};
let failures = 0;
let read = {}; // when each part was last read
const changed = new Set();
let timer = 0;

/** The parts that the current page shows: summary, mode, capacity, nodes, workloads, workload (an id). */
export function setNeeds(parts) {
  needs = parts;
  poll(session);
}

/** Starts a new session: at load, after sign-in, and for another cluster. */
export function restart() {
  session.abort();
  session = new AbortController();
  failures = 0;
  read = {};
  changed.clear();
  reset();
  const mine = session;
  readIdentity(mine);
  pollLoop(mine);
  watchEvents(mine);
}

/** Polls now, after a change by the user. */
export function refresh() {
  read.nodes = 0;
  return poll(session);
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });

async function readIdentity(mine) {
  while (!mine.signal.aborted) {
    try {
      const [identity, clusters] = await Promise.all([api.get("/identity"), api.clusters()]);
      if (!mine.signal.aborted) change({ identity, clusters });
      return;
    } catch (problem) {
      onProblem(mine, problem);
      await pause(BACKOFF_MS.at(-1), mine.signal);
    }
  }
}

async function pollLoop(mine) {
  while (!mine.signal.aborted) {
    await poll(mine);
    const ms = failures ? BACKOFF_MS[Math.min(failures, BACKOFF_MS.length) - 1] : POLL_MS;
    await pause(ms, mine.signal);
    await api.untilVisible(mine.signal);
  }
}

async function poll(mine) {
  const age = (name) => Date.now() - (read[name] ?? 0);
  const jobs = [];
  const job = (name, work) => { read[name] = Date.now(); jobs.push(work()); };
  job("mode", async () => keep(mine, { mode: await api.get("/mode") }));
  if (needs.summary) job("summary", async () => keep(mine, { summary: await api.get("/summary") }));
  if (needs.nodes && age("nodes") >= state.nodes.size * NODE_MS) job("nodes", () => readNodes(mine));
  if (needs.capacity && age("capacity") > CAPACITY_EVERY_MS) {
    job("capacity", async () => keep(mine, { capacity: await api.query("/capacity", ANY_SPEC) }));
  }
  if (needs.workload) job("workload", () => readWorkload(mine, needs.workload));
  if (needs.workloads && age("workloads") > LIST_EVERY_MS) job("workloads", () => readWorkloads(mine));
  const results = await Promise.allSettled(jobs);
  if (mine.signal.aborted) return;
  const failed = results.find((result) => result.status === "rejected");
  if (failed) onProblem(mine, failed.reason);
  else onResponse();
}

const keep = (mine, values) => { if (!mine.signal.aborted) change(values); };

async function readNodes(mine) {
  const nodes = await api.pages("/nodes", "nodes");
  keep(mine, { nodes: new Map(nodes.map((node) => [node.node_id, node])), nodesRead: true });
}

async function readWorkloads(mine) {
  read.workloads = Date.now();
  const first = !state.listed;
  const mapped = (views) => new Map(views.map((view) => [view.workload_id, indexed(view)]));
  const take = (views) => keep(mine, { workloads: mapped(views), changes: state.changes + 1 });
  try {
    const views = await api.pages("/workloads", "workloads", first ? take : undefined);
    take(views);
    keep(mine, { listed: true });
  } catch (problem) {
    read.workloads = 0;
    throw problem;
  }
}

async function readWorkload(mine, id) {
  try {
    const { workload } = await api.get(`/workloads/${api.segment(id)}`);
    if (!mine.signal.aborted) putWorkload(workload);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    if (!mine.signal.aborted) dropWorkload(id);
  }
}

function onResponse() {
  const was = state.link.state;
  failures = 0;
  change({ asOf: Date.now() });
  if (was === "live") return;
  change({ link: { state: "live", detail: "", since: Date.now() } });
  if (was !== "connecting") {
    read = {};
    poll(session);
  }
}

function onProblem(mine, problem) {
  if (mine.signal.aborted) return;
  if (!(problem instanceof api.Problem)) throw problem;
  if (problem.status === 429) return; // rate limit: the shown data is still valid
  failures += 1;
  const kind = kindOf(problem);
  const { link } = state;
  const since = link.state === kind ? link.since : Date.now();
  change({ link: { state: kind, detail: problem.message, since } });
}

function kindOf({ status, isUnavailable }) {
  if (status === 401 || status === 403) return "denied";
  if (!isUnavailable) return "error";
  return status === 0 ? "gateway" : "scheduler";
}

async function watchEvents(mine) {
  let after = null;
  while (!mine.signal.aborted) {
    try {
      after ??= await readEvents(mine);
      const headers = { Accept: "text/event-stream", "Last-Event-ID": after };
      const signal = api.whileVisible(mine.signal);
      for await (const message of messages(api.stream("/events/watch", { signal, headers }))) {
        if (mine.signal.aborted) return;
        after = message.id || after;
        const body = JSON.parse(message.data || "{}");
        if (message.event === "problem") throw new api.Problem(body.status, body.detail);
        onEvent(mine, body);
      }
    } catch (problem) {
      // The missed events are no longer stored: everything is read again.
      if (problem.status === 410) after = null, read = {};
      else if (!(problem instanceof api.Problem) && !mine.signal.aborted) throw problem;
    }
    // The end of a stream is the first sign of an outage.
    if (!mine.signal.aborted && !document.hidden) poll(mine);
    await pause(BACKOFF_MS[1], mine.signal);
    await api.untilVisible(mine.signal);
  }
}

async function readEvents(mine) {
  const { events, last } = await api.events({ limit: INITIAL_EVENTS });
  if (!mine.signal.aborted) {
    change({ events: [], eventsRead: true });
    addEvents(events);
  }
  return last;
}

function onEvent(mine, event) {
  if (!event.kind) return; // a bookmark
  addEvents([event]);
  changed.add(event.workload_id ?? "");
  if (timer) return;
  timer = setTimeout(() => { timer = 0; readAffected(mine); }, DEBOUNCE_MS);
}

/** Reads the workloads of the latest events again. */
async function readAffected(mine) {
  if (mine.signal.aborted) return;
  const ids = [...changed].filter(Boolean);
  changed.clear();
  try {
    if (needs.workloads && state.listed) await readChanged(mine, ids);
    await poll(mine);
  } catch (problem) {
    onProblem(mine, problem);
  }
}

async function readChanged(mine, ids) {
  if (ids.length <= ONE_BY_ONE_MAX) {
    await Promise.all(ids.map((id) => readWorkload(mine, id)));
  } else if (Date.now() - (read.workloads ?? 0) > LIST_AT_MOST_EVERY_MS) {
    await readWorkloads(mine);
  } else {
    read.workloads = Math.min(read.workloads, Date.now() - LIST_EVERY_MS + LIST_AT_MOST_EVERY_MS);
  }
}
