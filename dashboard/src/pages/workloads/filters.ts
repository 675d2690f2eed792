// Which workloads the list shows. They are filtered in memory, so that typing stays fast with thousands of them.

import { wordsOf } from "../../components/search";
import type { Workload } from "../../state/store";

export interface Filters {
  status: string;
  type: string;
  node: string;
  q: string;
}

export function filterWorkloads(workloads: Iterable<Workload>, { status, type, node, q }: Filters): Workload[] {
  const wanted = wordsOf(q);
  const found: Workload[] = [];
  for (const view of workloads) {
    if (status && view.status !== status) continue;
    if (type && view.type !== type) continue;
    if (node && view.assigned_node_id !== node) continue;
    if (wanted.every((word) => view.text.includes(word))) found.push(view);
  }
  return found.sort((a, b) => (a.workload_id < b.workload_id ? -1 : 1));
}
