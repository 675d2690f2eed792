// All workloads.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../../app/announce";
import type { Page } from "../../app/page";
import { setQuery, type Route } from "../../app/router";
import { NodeLink, WorkloadLink } from "../../components/links";
import { Picker, Search } from "../../components/search";
import { WorkloadStatus } from "../../components/status";
import { VirtualTable } from "../../components/virtual_table";
import { When } from "../../components/when";
import { counted } from "../../format";
import { emptyText, useAppState, type Workload } from "../../state/store";
import { filterWorkloads, type Filters } from "./filters";

const HEADS = ["Workload", "Status", "Type", "Node", "Updated", "Reason"];
const STATUSES = ["Running", "Pending", "Failed", "Stopped", "Unknown", "Deleting"];
const TYPES = ["container", "compose", "vm"];
const ANNOUNCE_AFTER_MS = 800;

function View({ route }: { route: Route }) {
  const state = useAppState();
  const [filters, setFilters] = useState<Filters>({ status: "", type: "", node: "", q: "", ...route.query });
  const found = useMemo(() => filterWorkloads(state.workloads.values(), filters), [state.workloads, state.changes, filters]);
  useAnnounced(found.length, filters);
  const choose = (name: keyof Filters) => (value: string) => {
    const next = { ...filters, [name]: value };
    setFilters(next);
    setQuery(route, { ...next });
  };
  const nodes = [...new Set([...state.nodes.keys(), filters.node].filter(Boolean))];
  return (
    <>
      <h1 tabIndex={-1}>Workloads</h1>
      <form class="row filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Search value={filters.q} placeholder="name, node, reason" onInput={choose("q")} />
        <Picker name="status" label="Status" value={filters.status} options={STATUSES} onChange={choose("status")} />
        <Picker name="type" label="Type" value={filters.type} options={TYPES} onChange={choose("type")} />
        <Picker name="node" label="Node" value={filters.node} options={nodes} onChange={choose("node")} />
      </form>
      <p class="quiet" id="found">
        {state.listed || found.length
          ? `${found.length} of ${counted(state.workloads.size, "workload")}${state.listed ? "" : ", loading …"}`
          : emptyText(false)}
      </p>
      <VirtualTable label="Workloads" heads={HEADS} items={found} itemKey={(view) => view.workload_id} cells={cells} resetKey={JSON.stringify(filters)} />
    </>
  );
}

/** Announces the number of results when the user stops typing. */
function useAnnounced(count: number, filters: Filters): void {
  const latest = useRef(count);
  latest.current = count;
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) { isFirst.current = false; return undefined; }
    const timer = setTimeout(() => announce(`${counted(latest.current, "workload")} found`), ANNOUNCE_AFTER_MS);
    return () => clearTimeout(timer);
  }, [filters]);
}

const cells = (view: Workload) => [
  <WorkloadLink id={view.workload_id} />,
  <WorkloadStatus view={view} />,
  view.type ?? "",
  <NodeLink id={view.assigned_node_id} />,
  <When at={view.last_updated} />,
  view.reason?.message ?? view.failure_reason ?? "",
];

export const workloads: Page = { title: () => "Workloads", needs: () => ({ workloads: true, nodes: true }), View };
