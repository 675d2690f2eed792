// All workloads: filters, order, and actions on a selection.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../../app/announce";
import type { Page } from "../../app/page";
import { setQuery, type Route } from "../../app/router";
import { NodeLink, WorkloadLink } from "../../components/links";
import { Picker, Search } from "../../components/search";
import { healthOf, Status } from "../../components/status";
import { VirtualTable } from "../../components/virtual_table";
import { When } from "../../components/when";
import { counted } from "../../format";
import { emptyText, useAppState, type Workload } from "../../state/store";
import { BulkActions } from "./bulk";
import { filterWorkloads, nextSort, NO_FILTERS, SORT_KEYS, type Filters } from "./filters";

const HEADS = ["Workload", "Status", "Health", "Type", "Node", "Updated", "Reason"];
const STATUSES = ["Running", "Pending", "Failed", "Stopped", "Unknown", "Deleting"];
const HEALTHS = ["healthy", "unhealthy", "starting"];
const TYPES = ["container", "compose", "vm"];
const ANNOUNCE_AFTER_MS = 800;

function View({ route }: { route: Route }) {
  const state = useAppState();
  const [filters, setFilters] = useState<Filters>({ ...NO_FILTERS, ...route.query });
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const found = useMemo(() => filterWorkloads(state.workloads.values(), filters), [state.workloads, state.changes, filters]);
  useAnnounced(found.length, filters);
  const choose = (name: keyof Filters) => (value: string) => {
    const next = { ...filters, [name]: value };
    setFilters(next);
    setQuery(route, { ...next });
  };
  const toggle = (id: string) => setSelected((ids) => {
    const next = new Set(ids);
    if (!next.delete(id)) next.add(id);
    return next;
  });
  const nodes = [...new Set([...state.nodes.keys(), filters.node].filter(Boolean))];
  const chosen = [...selected].filter((id) => state.workloads.has(id));
  return (
    <>
      <h1 tabIndex={-1}>Workloads</h1>
      <form class="row filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Search value={filters.q} placeholder="name, node, reason" onInput={choose("q")} />
        <Picker name="status" label="Status" value={filters.status} options={STATUSES} onChange={choose("status")} />
        <Picker name="health" label="Health" value={filters.health} options={HEALTHS} onChange={choose("health")} />
        <Picker name="type" label="Type" value={filters.type} options={TYPES} onChange={choose("type")} />
        <Picker name="node" label="Node" value={filters.node} options={nodes} onChange={choose("node")} />
      </form>
      <p class="quiet row">
        <span id="found">
          {state.listed || found.length
            ? `${found.length} of ${counted(state.workloads.size, "workload")}${state.listed ? "" : ", loading …"}`
            : emptyText(false)}
        </span>
        {found.length > 0 && <button type="button" class="small" onClick={() => setSelected(new Set(found.map((view) => view.workload_id)))}>Select all shown</button>}
      </p>
      {chosen.length > 0 && <BulkActions ids={chosen} onDone={() => setSelected(new Set())} />}
      <VirtualTable label="Workloads" heads={HEADS} headCells={headCells(filters.sort, choose("sort"))} items={found}
        itemKey={(view) => view.workload_id} cells={(view) => cells(view, selected.has(view.workload_id), toggle)}
        version={selected} resetKey={JSON.stringify(filters)} />
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

const headCells = (sort: string, onSort: (value: string) => void) => HEADS.map((head) => {
  if (!Object.hasOwn(SORT_KEYS, head)) return head;
  const mark = sort === head ? " ▲" : sort === `-${head}` ? " ▼" : "";
  return <button type="button" class="sort" aria-label={`Sort by ${head.toLowerCase()}`} onClick={() => onSort(nextSort(sort, head))}>{head}{mark}</button>;
});

function cells(view: Workload, isSelected: boolean, toggle: (id: string) => void) {
  const id = view.workload_id, health = healthOf(view);
  return [
    <><input type="checkbox" aria-label={`Select ${id}`} checked={isSelected} onChange={() => toggle(id)} /> <WorkloadLink id={id} /></>,
    <Status word={view.status} />,
    health ? <Status word={health} /> : "–",
    view.type ?? "",
    <NodeLink id={view.assigned_node_id} />,
    <When at={view.last_updated} />,
    view.reason?.message ?? view.failure_reason ?? "",
  ];
}

export const workloads: Page = { title: () => "Workloads", needs: () => ({ workloads: true, nodes: true }), View };
