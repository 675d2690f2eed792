// All workloads. They are filtered in memory, so that typing stays fast with thousands of them.

import { announce, h } from "../dom.js";
import { ago, counted } from "../format.js";
import { nodeLink, workloadLink, workloadStatus } from "../components.js";
import { VirtualTable } from "../virtual_table.js";
import { emptyText } from "../state.js";

const HEADS = ["Workload", "Status", "Type", "Node", "Updated", "Reason"];
const STATUSES = ["Running", "Pending", "Failed", "Stopped", "Unknown", "Deleting"];
const TYPES = ["container", "compose", "vm"];
const ANNOUNCE_AFTER_MS = 800;

export const title = () => "Workloads";
export const needs = () => ({ workloads: true, nodes: true });

export function open(route, { redraw, setQuery }) {
  const filters = { status: "", type: "", node: "", q: "", ...route.query };
  const table = new VirtualTable({ label: "Workloads", heads: HEADS, key: (view) => view.workload_id, cells });
  let known = null, found = [], timer = 0;

  function choose(name, value) {
    filters[name] = value;
    known = null;
    setQuery(filters);
    table.element.scrollTop = 0;
    redraw();
    clearTimeout(timer);
    timer = setTimeout(() => announce(`${counted(found.length, "workload")} found`), ANNOUNCE_AFTER_MS);
  }

  const picker = (name, label, options) =>
    h("label", {}, h("span", {}, label), h("select", { name, onchange: (event) => choose(name, event.target.value) },
      h("option", { value: "" }, "all"),
      options.map((option) => h("option", { value: option, selected: filters[name] === option }, option))));

  return {
    draw(state) {
      if (known !== state.changes) {
        known = state.changes;
        found = filterWorkloads(state.workloads, filters);
        table.show(found);
      }
      const nodes = new Set([...state.nodes.keys(), filters.node].filter(Boolean));
      return [
        h("h1", { tabindex: "-1" }, "Workloads"),
        h("form", { class: "row filters", role: "search", onsubmit: (event) => event.preventDefault() },
          h("label", {}, h("span", {}, "Search"), h("input", {
            type: "search", name: "q", "data-filter": true, value: filters.q, autocomplete: "off", placeholder: "name, node, reason …  ( / )",
            oninput: (event) => choose("q", event.target.value),
          })),
          picker("status", "Status", STATUSES), picker("type", "Type", TYPES), picker("node", "Node", [...nodes])),
        h("p", { class: "quiet", id: "found" }, 
          state.listed || found.length ? `${found.length} of ${counted(state.workloads.size, "workload")}${state.listed ? "" : ", loading …"}` : emptyText(false)),
        table.element,
      ];
    },
    close: () => { table.close(); clearTimeout(timer); },
  };
}

export function filterWorkloads(workloads, { status, type, node, q }) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const view of workloads.values()) {
    if (status && view.status !== status) continue;
    if (type && view.type !== type) continue;
    if (node && view.assigned_node_id !== node) continue;
    if (words.every((word) => view.text.includes(word))) found.push(view);
  }
  return found.sort((a, b) => (a.workload_id < b.workload_id ? -1 : 1));
}

const cells = (view) => [
  workloadLink(view.workload_id),
  workloadStatus(view),
  view.type ?? "",
  nodeLink(view.assigned_node_id),
  h("time", { datetime: view.last_updated, "data-at": view.last_updated }, ago(view.last_updated)),
  view.reason?.message ?? view.failure_reason ?? "",
];
