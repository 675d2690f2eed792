// All nodes with their free resources.

import { useMemo } from "preact/hooks";
import type { NodeView } from "../../api/schema";
import type { Page } from "../../app/page";
import { NodeLink } from "../../components/links";
import { Status } from "../../components/status";
import { VirtualTable } from "../../components/virtual_table";
import { When } from "../../components/when";
import { cores, megabytes, percent } from "../../format";
import { emptyText, useAppState } from "../../state/store";
import { Join } from "./join";

const HEADS = ["Node", "Status", "CPU free", "Memory free", "Disk free", "Workloads", "Heartbeat", "Taints"];

function View() {
  const { nodes, nodesRead } = useAppState();
  const items = useMemo(() => [...nodes.values()], [nodes]);
  return (
    <>
      <h1 tabIndex={-1}>Nodes</h1>
      <Join />
      {items.length
        ? <VirtualTable label="Nodes" heads={HEADS} items={items} itemKey={(node) => node.node_id ?? ""} cells={cells} across={1} />
        : <p class="quiet">{emptyText(nodesRead, "No node has joined yet.")}</p>}
    </>
  );
}

export function shownStatus(node: NodeView): string {
  if (node.confirmed_dead) return `${node.status} (dead)`;
  return node.cordoned && node.status === "Ready" ? "Ready (cordoned)" : node.status ?? "";
}

const free = (left: number | string | undefined, total: number | string | undefined, text: string): string =>
  `${text} (${percent(Number(left ?? 0), Number(total ?? 0))} %)`;

const cells = (node: NodeView) => [
  <NodeLink id={node.node_id} />,
  <Status word={node.status} shown={shownStatus(node)} />,
  free(node.available_cpu_cores, node.total_cpu_cores, cores(node.available_cpu_cores)),
  free(node.available_memory_mb, node.total_memory_mb, megabytes(node.available_memory_mb)),
  free(node.available_disk_gb, node.total_disk_gb, `${node.available_disk_gb ?? 0} GB`),
  String(node.workload_count ?? 0),
  <When at={node.last_heartbeat} />,
  (node.taints ?? []).join(", ") || "–",
];

export const nodes: Page = { title: () => "Nodes", needs: () => ({ nodes: true }), View };
