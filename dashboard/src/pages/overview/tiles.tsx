// Nodes as tiles: their size is the capacity, the filling is what is reserved and used, the colour is the health.

import type { NodeView } from "../../api/schema";
import { segment } from "../../api/client";
import { totals } from "../../components/capacity";
import { percent } from "../../format";
import { shownStatus } from "../nodes";

const TILES_MAX = 500;
const SIDE_MIN_PX = 44, SIDE_MAX_PX = 132;

export function NodeTiles({ nodes }: { nodes: NodeView[] }) {
  const largest = Math.max(...nodes.map(sizeOf), 1);
  return (
    <>
      <ul class="tiles">
        {nodes.slice(0, TILES_MAX).map((node) => <li key={node.node_id}><Tile node={node} side={sideOf(sizeOf(node), largest)} /></li>)}
      </ul>
      {nodes.length > TILES_MAX && <p><a href="#/nodes">All {nodes.length} nodes</a></p>}
      <p class="quiet small">Size: CPU and memory. Wide bars: reserved CPU and memory; narrow bars: used.</p>
    </>
  );
}

/** The area of a tile is in proportion to the capacity, within limits. */
export const sideOf = (size: number, largest: number): number =>
  Math.round(Math.max(SIDE_MIN_PX, SIDE_MAX_PX * Math.sqrt(size / largest)));

/** Cores and memory have the same weight at 4 GiB per core. */
export const sizeOf = (node: NodeView): number => Number(node.total_cpu_cores ?? 0) + Number(node.total_memory_mb ?? 0) / 4096;

export function toneOf(node: NodeView): "good" | "wait" | "bad" {
  if (node.status !== "Ready") return node.drain || node.status === "Draining" ? "wait" : "bad";
  return node.cordoned || node.drain || node.problems?.length ? "wait" : "good";
}

function Tile({ node, side }: { node: NodeView; side: number }) {
  const { cpu, memory } = totals([node]);
  const share = (value: number | undefined, total: number) => Math.min(100, percent(value ?? 0, total));
  const label = `${node.node_id}: ${shownStatus(node)}, CPU ${share(cpu.reserved, cpu.total)} % reserved, memory ${share(memory.reserved, memory.total)} % reserved`;
  return (
    <a class={`tile ${toneOf(node)}`} href={`#/nodes/${segment(node.node_id ?? "")}`} title={label} aria-label={label} style={{ width: `${side}px`, height: `${side}px` }}>
      <svg aria-hidden="true" width="100%" height="100%" viewBox="0 0 100 100" preserveAspectRatio="none">
        {[cpu, memory].map(({ reserved, used, total }, index) => (
          <g key={index}>
            <rect class="bar-reserved" x={8 + 44 * index} width="40" y={100 - share(reserved, total)} height={share(reserved, total)} />
            <rect class="bar-used" x={20 + 44 * index} width="16" y={100 - share(used, total)} height={share(used, total)} />
          </g>
        ))}
      </svg>
      <span class="tile-name">{node.node_id}</span>
    </a>
  );
}
