// Keeps the state as the cluster is: events as they come, figures every few seconds, and all of it again
// after the gateway or the scheduler was away. Only what the page on screen needs is asked for.

import * as api from "./api.js";
import { messages } from "./sse.js";
import { addEvents, change, dropWorkload, forget, indexed, putWorkload, state } from "./state.js";

const POLL_MS = 4000, SETTLE_MS = 250;
const BACK_OFF_MS = [500, 1000, 2000, 3000];
const EVENTS_AT_FIRST = 200;
const ONE_BY_ONE_MAX = 16; // more than so many that changed are not asked for one by one
// Whether a node could be lost does not depend on what is asked about, but something has to be.
const ANY = { spec: { type: "container", container: { image: "any" } } };
const NODE_MS = 2; // thousands of nodes are read less often
const LIST_EVERY_MS = 60000, LIST_AT_MOST_EVERY_MS = 3000, CAPACITY_EVERY_MS = 20000;

let session = new AbortController();
let wanted = {};
let failures = 0;
let read = {}; // when each part was last read
const changed = new Set();
let settling = 0;

/** The parts that the page on screen shows: summary, mode, capacity, nodes, workloads, workload (an id). */
export function want(parts) {
  wanted = parts;
  poll(session);
}

/** Begin anew: at first, after signing in, and with another cluster. */
export function restart() {
  session.abort();
  session = new AbortController();
  failures = 0;
  read = {};
  changed.clear();
  forget();
  const mine = session;
  whoAmI(mine);
  polling(mine);
  watching(mine);
}

/** Now, and not in a few seconds: something was just done. */
export function refresh() {
  read.nodes = 0;
  return poll(session);
}

const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });

async function whoAmI(mine) {
  while (!mine.signal.aborted) {
    try {
      const [identity, clusters] = await Promise.all([api.get("/identity"), api.clusters()]);
      if (!mine.signal.aborted) change({ identity, clusters });
      return;
    } catch (problem) {
      told(mine, problem);
      await pause(BACK_OFF_MS.at(-1), mine.signal);
    }
  }
}

async function polling(mine) {
  while (!mine.signal.aborted) {
    await poll(mine);
    const ms = failures ? BACK_OFF_MS[Math.min(failures, BACK_OFF_MS.length) - 1] : POLL_MS;
    await pause(ms, mine.signal);
    await api.seen(mine.signal);
  }
}

async function poll(mine) {
  const age = (name) => Date.now() - (read[name] ?? 0);
  const jobs = [];
  const job = (name, work) => { read[name] = Date.now(); jobs.push(work()); };
  job("mode", async () => keep(mine, { mode: await api.get("/mode") }));
  if (wanted.summary) job("summary", async () => keep(mine, { summary: await api.get("/summary") }));
  if (wanted.nodes && age("nodes") >= state.nodes.size * NODE_MS) job("nodes", () => readNodes(mine));
  if (wanted.capacity && age("capacity") > CAPACITY_EVERY_MS) {
    job("capacity", async () => keep(mine, { capacity: await api.query("/capacity", ANY) }));
  }
  if (wanted.workload) job("workload", () => readWorkload(mine, wanted.workload));
  if (wanted.workloads && age("workloads") > LIST_EVERY_MS) job("workloads", () => readWorkloads(mine));
  const results = await Promise.allSettled(jobs);
  if (mine.signal.aborted) return;
  const failed = results.find((result) => result.status === "rejected");
  if (failed) told(mine, failed.reason);
  else heard();
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
    const { workload } = await api.get(`/workloads/${api.part(id)}`);
    if (!mine.signal.aborted) putWorkload(workload);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    if (!mine.signal.aborted) dropWorkload(id);
  }
}

function heard() {
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

function told(mine, problem) {
  if (mine.signal.aborted) return;
  if (!(problem instanceof api.Problem)) throw problem;
  if (problem.status === 429) return; // too fast: what is shown is still so
  failures += 1;
  const kind = kindOf(problem);
  const { link } = state;
  const since = link.state === kind ? link.since : Date.now();
  change({ link: { state: kind, detail: problem.message, since } });
}

function kindOf({ status, isGone }) {
  if (status === 401 || status === 403) return "denied";
  if (!isGone) return "trouble";
  return status === 0 ? "gateway" : "scheduler";
}

async function watching(mine) {
  let after = null;
  while (!mine.signal.aborted) {
    try {
      after ??= await readEvents(mine);
      const headers = { Accept: "text/event-stream", "Last-Event-ID": after };
      const signal = api.whileSeen(mine.signal);
      for await (const message of messages(api.streamed("/events/watch", { signal, headers }))) {
        if (mine.signal.aborted) return;
        after = message.id || after;
        const told = JSON.parse(message.data || "{}");
        if (message.event === "problem") throw new api.Problem(told.status, told.detail);
        happened(mine, told);
      }
    } catch (problem) {
      // What was missed is no longer kept: everything is read again.
      if (problem.status === 410) after = null, read = {};
      else if (!(problem instanceof api.Problem) && !mine.signal.aborted) throw problem;
    }
    // A stream that ends is the first sign that somebody is gone.
    if (!mine.signal.aborted && !document.hidden) poll(mine);
    await pause(BACK_OFF_MS[1], mine.signal);
    await api.seen(mine.signal);
  }
}

async function readEvents(mine) {
  const { events, last } = await api.events({ limit: EVENTS_AT_FIRST });
  if (!mine.signal.aborted) {
    change({ events: [], eventsRead: true });
    addEvents(events);
  }
  return last;
}

function happened(mine, event) {
  if (!event.kind) return; // a bookmark
  addEvents([event]);
  changed.add(event.workload_id ?? "");
  if (settling) return;
  settling = setTimeout(() => { settling = 0; settle(mine); }, SETTLE_MS);
}

/** Read again what the latest events were about. */
async function settle(mine) {
  if (mine.signal.aborted) return;
  const ids = [...changed].filter(Boolean);
  changed.clear();
  try {
    if (wanted.workloads && state.listed) await readChanged(mine, ids);
    await poll(mine);
  } catch (problem) {
    told(mine, problem);
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
