// Which workloads the list shows, and in which order. They are filtered in memory, so that typing stays fast with
// thousands of them.

import { wordsOf } from "../../components/search";
import { healthOf } from "../../components/status";
import type { Workload } from "../../state/store";

export interface Filters {
  status: string;
  health: string;
  type: string;
  node: string;
  q: string;
  sort: string; // a column of SORT_KEYS, with a leading - if descending
}

export const NO_FILTERS: Filters = { status: "", health: "", type: "", node: "", q: "", sort: "" };

export const SORT_KEYS: Record<string, (view: Workload) => string> = {
  Workload: (view) => view.workload_id,
  Status: (view) => view.status ?? "",
  Health: healthOf,
  Type: (view) => view.type ?? "",
  Node: (view) => view.assigned_node_id ?? "",
  Updated: (view) => view.last_updated ?? "",
};

export function filterWorkloads(workloads: Iterable<Workload>, { status, health, type, node, q, sort }: Filters): Workload[] {
  const wanted = wordsOf(q);
  const found: Workload[] = [];
  for (const view of workloads) {
    if (status && view.status !== status) continue;
    if (type && view.type !== type) continue;
    if (node && view.assigned_node_id !== node) continue;
    if (health && healthOf(view) !== health) continue;
    if (wanted.every((word) => view.text.includes(word))) found.push(view);
  }
  return found.sort(orderOf(sort));
}

/** Equal values are ordered by id. */
function orderOf(sort: string): (a: Workload, b: Workload) => number {
  const byId = (a: Workload, b: Workload) => compare(a.workload_id, b.workload_id);
  const key = SORT_KEYS[sort.replace(/^-/, "")];
  if (!key) return byId;
  const sign = sort.startsWith("-") ? -1 : 1;
  return (a, b) => sign * compare(key(a), key(b)) || byId(a, b);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** The order after a click on a column: ascending, descending, then that of the ids. */
export function nextSort(sort: string, column: string): string {
  if (sort === column) return `-${column}`;
  return sort === `-${column}` ? "" : column;
}
