// All nodes with their free resources.

import { h } from "../dom.js";
import { cores, megabytes, percent } from "../format.js";
import { nodeLink, status, when } from "../components.js";
import { VirtualTable } from "../virtual_table.js";
import { emptyText } from "../state.js";

export const title = () => "Nodes";
export const needs = () => ({ nodes: true });

const HEADS = ["Node", "Status", "CPU free", "Memory free", "Disk free", "Workloads", "Heartbeat", "Taints"];

export function open() {
  const table = new VirtualTable({ label: "Nodes", heads: HEADS, key: (node) => node.node_id, cells, across: 1 });
  let known = null;
  return {
    draw(state) {
      if (known !== state.nodes) {
        known = state.nodes;
        table.show([...known.values()]);
      }
      const empty = h("p", { class: "quiet" }, emptyText(state.nodesRead, "No node has joined yet."));
      return [h("h1", { tabindex: "-1" }, "Nodes"), known.size ? table.element : empty];
    },
    close: () => table.close(),
  };
}

export const shownStatus = (node) =>
  node.confirmed_dead ? `${node.status} (dead)` : node.cordoned && node.status === "Ready" ? "Ready (cordoned)" : node.status;

const free = (left, total, text) => `${text} (${percent(Number(left ?? 0), Number(total ?? 0))} %)`;

const cells = (node) => [
  nodeLink(node.node_id),
  status(node.status, shownStatus(node)),
  free(node.available_cpu_cores, node.total_cpu_cores, cores(node.available_cpu_cores)),
  free(node.available_memory_mb, node.total_memory_mb, megabytes(node.available_memory_mb)),
  free(node.available_disk_gb, node.total_disk_gb, `${node.available_disk_gb ?? 0} GB`),
  String(node.workload_count ?? 0),
  when(node.last_heartbeat),
  (node.taints ?? []).join(", ") || "–",
];
