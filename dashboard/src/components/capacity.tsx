// The reserved and the used share of resources.

import type { NodeUsage, NodeView } from "../api/schema";
import { cores, gigabytes, megabytes, percent } from "../format";

interface Amounts {
  total: number;
  reserved: number;
  used: number | undefined; // undefined: no node reports it
}

interface BarProps extends Amounts {
  name: string;
  unit: (value: number) => string;
}

function Bar({ name, used, reserved, total, unit }: BarProps) {
  const width = (value: number) => `${Math.min(100, percent(value, total))}%`;
  return (
    <div class="gauge">
      <div class="gauge-words">
        <strong>{name}</strong>
        <span>{percent(reserved, total)} % reserved{used !== undefined && `, ${percent(used, total)} % used`}</span>
      </div>
      <svg class="bar" aria-hidden="true" width="100%" height="12">
        <rect class="bar-all" width="100%" height="12" rx="3" />
        <rect class="bar-reserved" width={width(reserved)} height="12" rx="3" />
        {used !== undefined && <rect class="bar-used" width={width(used)} height="5" y="3.5" rx="2" />}
      </svg>
      <div class="quiet small">{unit(reserved)} reserved of {unit(total)}{used !== undefined && `; ${unit(used)} used`}</div>
    </div>
  );
}

/** CPU, memory and disk of one node or several. */
export function CapacityBars({ nodes }: { nodes: Iterable<NodeView> }) {
  const { cpu, memory, disk } = totals([...nodes]);
  return (
    <div class="gauges">
      <Bar name="CPU" {...cpu} unit={cores} />
      <Bar name="Memory" {...memory} unit={megabytes} />
      <Bar name="Disk" {...disk} unit={gigabytes} />
    </div>
  );
}

/** Total, reserved and used resources of the nodes together. */
export function totals(nodes: NodeView[]): Record<"cpu" | "memory" | "disk", Amounts> {
  const sum = (read: (node: NodeView) => number | string | undefined) => nodes.reduce((total, node) => total + Number(read(node) ?? 0), 0);
  const hasUsage = nodes.some((node) => node.usage);
  const used = (name: keyof NodeUsage, scale = 1) => (hasUsage ? sum((node) => node.usage?.[name] as string | undefined) / scale : undefined);
  const amounts = (total: number, free: number, usedNow: number | undefined) => ({ total, reserved: total - free, used: usedNow });
  return {
    cpu: amounts(sum((node) => node.total_cpu_cores), sum((node) => node.available_cpu_cores), used("cpu_used_millicores", 1000)),
    memory: amounts(sum((node) => node.total_memory_mb), sum((node) => node.available_memory_mb), used("memory_used_mb")),
    disk: amounts(sum((node) => node.total_disk_gb), sum((node) => node.available_disk_gb), used("disk_used_gb")),
  };
}
