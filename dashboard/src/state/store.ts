// The state of the application. Pages read it; only sync.ts writes it.

import { useEffect, useState } from "preact/hooks";
import type { Clusters } from "../api/client";
import type {
  EventView, GetCapacityResponse, GetClusterSummaryResponse, IdentityView, ModeView, NodeView, WorkloadView,
} from "../api/schema";

const EVENTS_MAX = 1000;

/** Why there is or is not live data. `denied`: sign in first. `error`: any other response. */
export type LinkState = "connecting" | "live" | "gateway" | "scheduler" | "denied" | "error";

/** A workload with its search text, built once instead of at each key stroke. */
export type Workload = WorkloadView & { workload_id: string; text: string };

export interface State {
  session: number; // another user or another cluster: pages begin again
  identity: IdentityView | null;
  clusters: Clusters | null;
  summary: GetClusterSummaryResponse | null;
  mode: ModeView | null;
  capacity: GetCapacityResponse | null;
  nodes: Map<string, NodeView>;
  nodesRead: boolean; // the list of nodes was read
  workloads: Map<string, Workload>;
  absent: Set<string>; // workloads that do not exist according to the scheduler
  listed: boolean; // `workloads` is complete
  changes: number; // incremented with each change of `workloads`
  events: EventView[]; // newest last
  eventsRead: boolean;
  link: { state: LinkState; detail: string; since: number };
  asOf: number; // when the scheduler last responded
}

const empty = (): State => ({
  session: 0,
  identity: null,
  clusters: null,
  summary: null,
  mode: null,
  capacity: null,
  nodes: new Map(),
  nodesRead: false,
  workloads: new Map(),
  absent: new Set(),
  listed: false,
  changes: 0,
  events: [],
  eventsRead: false,
  link: { state: "connecting", detail: "", since: Date.now() },
  asOf: 0,
});

export const state: State = empty();

const listeners = new Set<() => void>();
let isScheduled = false;

/** Listeners are called once per frame after changes. */
export function onChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => { listeners.delete(listener); };
}

export function change(values: Partial<State>): void {
  Object.assign(state, values);
  if (isScheduled) return;
  isScheduled = true;
  // A hidden page gets no frames; it is drawn when it becomes visible.
  requestAnimationFrame(() => {
    isScheduled = false;
    for (const listener of [...listeners]) listener();
  });
}

/** Renders the component again after each change of the state. */
export function useAppState(): State {
  const [, render] = useState(0);
  useEffect(() => onChange(() => render((count) => count + 1)), []);
  return state;
}

/** Resets the state for another cluster or another user. */
export function reset(): void {
  const { clusters, session } = state;
  change({ ...empty(), clusters, session: session + 1 });
}

export function addEvents(events: EventView[]): void {
  const last = Number(state.events.at(-1)?.sequence ?? 0);
  const newer = events.filter((event) => Number(event.sequence) > last);
  change({ events: [...state.events, ...newer].slice(-EVENTS_MAX) });
}

const searchable = (view: WorkloadView): string =>
  [view.workload_id, view.type, view.status, view.desired_state, view.assigned_node_id, view.reason?.code, view.reason?.message]
    .join(" ").toLowerCase();

export const indexed = (view: WorkloadView): Workload => ({ ...view, workload_id: view.workload_id ?? "", text: searchable(view) });

export function putWorkload(view: WorkloadView): void {
  const id = view.workload_id ?? "";
  state.workloads.set(id, indexed(view));
  state.absent.delete(id);
  change({ changes: state.changes + 1 });
}

export function dropWorkload(id: string): void {
  state.workloads.delete(id);
  state.absent.add(id);
  change({ changes: state.changes + 1 });
}

/** The text for an empty list. `text` is used only if the list was read from the scheduler. */
export function emptyText(isRead: boolean, text = ""): string {
  if (isRead) return text;
  return state.link.state === "denied" ? "Not shown: sign in first." : "Loading …";
}

/** Nothing until the identity is known. Without a role, authentication is off (-insecure) and everything is allowed. */
export function isAllowed(permission: string): boolean {
  const { identity } = state;
  return identity !== null && (!identity.role || (identity.deeds ?? []).includes(permission));
}
