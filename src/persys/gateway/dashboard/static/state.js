// The state of the application. Views read it; only sync.js writes it.

const EVENTS_MAX = 1000;

function empty() {
  return {
    identity: null,
    clusters: null,
    summary: null,
    mode: null,
    capacity: null,
    nodes: new Map(),
    nodesRead: false, // the list of nodes was read
    workloads: new Map(),
    absent: new Set(), // workloads that do not exist according to the scheduler
    listed: false, // `workloads` is complete
    changes: 0, // incremented with each change of `workloads`
    events: [], // newest last
    eventsRead: false,
    // live, connecting, gateway (unreachable), scheduler (unreachable), denied (sign in first), error (any other)
    link: { state: "connecting", detail: "", since: Date.now() },
    asOf: 0, // when the scheduler last responded
  };
}

export const state = empty();

const listeners = new Set();
let isScheduled = false;

/** Listeners are called once per frame after changes. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function change(values) {
  Object.assign(state, values);
  if (isScheduled) return;
  isScheduled = true;
  // A hidden page gets no frames; it is drawn when it becomes visible.
  requestAnimationFrame(() => {
    isScheduled = false;
    for (const listener of [...listeners]) listener(state);
  });
}

/** Resets the state for another cluster or another user. */
export function reset() {
  const { identity, clusters } = state;
  change({ ...empty(), identity, clusters });
}

export function addEvents(events) {
  const last = Number(state.events.at(-1)?.sequence ?? 0);
  const newer = events.filter((event) => Number(event.sequence) > last);
  change({ events: [...state.events, ...newer].slice(-EVENTS_MAX) });
}

const searchable = (view) =>
  [view.workload_id, view.type, view.status, view.desired_state, view.assigned_node_id, view.reason?.code, view.reason?.message]
    .join(" ").toLowerCase();

/** A workload with its search text, built once instead of at each key stroke. */
export const indexed = (view) => ({ ...view, text: searchable(view) });

export function putWorkload(view) {
  state.workloads.set(view.workload_id, indexed(view));
  state.absent.delete(view.workload_id);
  change({ changes: state.changes + 1 });
}

export function dropWorkload(id) {
  state.workloads.delete(id);
  state.absent.add(id);
  change({ changes: state.changes + 1 });
}

/** The text for an empty list. `text` is used only if the list was read from the scheduler. */
export function emptyText(isRead, text) {
  if (isRead) return text;
  return state.link.state === "denied" ? "Not shown: sign in first." : "Loading …";
}

/** Without a role, authentication is off (-insecure) and everything is allowed. */
export function isAllowed(permission) {
  const { identity } = state;
  return !identity?.role || (identity.deeds ?? []).includes(permission);
}
