// What is known now, in one place. Views read it; only live.js writes it.

const EVENTS_MAX = 1000;

function empty() {
  return {
    identity: null,
    clusters: null,
    summary: null,
    mode: null,
    capacity: null,
    nodes: new Map(),
    nodesRead: false, // an empty list means that there are none
    workloads: new Map(),
    absent: new Set(), // workloads that the scheduler said do not exist
    listed: false, // all workloads are here, not only some
    changes: 0, // rises with each change of the workloads
    events: [], // newest last
    eventsRead: false,
    // live, connecting, gateway (gone), scheduler (gone), denied (sign in first), trouble (whatever else)
    link: { state: "connecting", detail: "", since: Date.now() },
    asOf: 0, // when something was last heard from the scheduler
  };
}

export const state = empty();

const listeners = new Set();
let asked = false;

/** Called once per frame after changes, however many there were. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function change(values) {
  Object.assign(state, values);
  if (asked) return;
  asked = true;
  // A page that nobody sees gets no frames; it is drawn when it is looked at.
  requestAnimationFrame(() => {
    asked = false;
    for (const listener of [...listeners]) listener(state);
  });
}

/** As when the page was just opened: another cluster, or another person. */
export function forget() {
  const { identity, clusters } = state;
  change({ ...empty(), identity, clusters });
}

export function addEvents(fresh) {
  const last = Number(state.events.at(-1)?.sequence ?? 0);
  const newer = fresh.filter((event) => Number(event.sequence) > last);
  change({ events: [...state.events, ...newer].slice(-EVENTS_MAX) });
}

const searchable = (view) =>
  [view.workload_id, view.type, view.status, view.desired_state, view.assigned_node_id, view.reason?.code, view.reason?.message]
    .join(" ").toLowerCase();

/** A workload with what a search looks at, made once and not at each key that is pressed. */
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

/** What a page says where it has nothing to show: that there is nothing only if the scheduler said so. */
export function nothing(isRead, text) {
  if (isRead) return text;
  return state.link.state === "denied" ? "Not shown: sign in first." : "Loading …";
}

/** Without a word about it, everybody may do everything: nobody asks (-insecure). */
export function may(deed) {
  const { identity } = state;
  return !identity?.role || (identity.deeds ?? []).includes(deed);
}
