// The usage of a node or workload in the last 24 hours, as the gateway has sampled it.

import { call } from "../api/client";
import type { Operations } from "../api/schema";
import { bytes, cores, duration, gigabytes, megabytes } from "../format";
import { useReading } from "../state/reading";
import { Card, Quiet } from "./card";
import { Chart } from "./chart";
import type { Point } from "./series";

const READ_EVERY_MS = 60_000;

type Usage = Operations["GetUsage"]["response"];
type Unit = (value: number) => string;

const millicores: Unit = (value) => cores(value / 1000);
const CURVES: Record<string, [name: string, unit: Unit]> = {
  cpu_used_millicores: ["CPU used", millicores],
  cpu_reserved_millicores: ["CPU reserved", millicores],
  memory_used_mb: ["Memory used", megabytes],
  memory_reserved_mb: ["Memory reserved", megabytes],
  disk_used_gb: ["Disk used", (value) => gigabytes(Math.round(value))],
  cpu_percent: ["CPU", (value) => `${value.toFixed(1)} %`],
  memory_bytes: ["Memory", bytes],
};

export function UsageHistory({ node = "", workload = "" }: { node?: string; workload?: string }) {
  const { value, problem } = useReading(() => call("GetUsage", node ? { node_id: node } : { workload_id: workload }), "", READ_EVERY_MS);
  return (
    <Card title="Usage of the last 24 hours" width="wide">
      {value ? <Curves usage={value} /> : <Quiet>{problem?.message ?? "Loading …"}</Quiet>}
    </Card>
  );
}

function Curves({ usage }: { usage: Usage }) {
  if (!usage.times?.length) {
    return <Quiet>No samples yet: this gateway takes one every {duration(usage.interval_seconds ?? 0)}, and keeps them while it runs.</Quiet>;
  }
  return (
    <div class="charts">
      {(usage.series ?? []).map(({ name = "" }) => {
        const [text, unit] = CURVES[name] ?? [name, String];
        return <Chart key={name} name={text} points={pointsOf(usage, name)} unit={unit} />;
      })}
    </div>
  );
}

/** The points of one series, in milliseconds since 1970. */
export function pointsOf({ times = [], series = [] }: Usage, name: string): Point[] {
  const values = series.find((one) => one.name === name)?.values ?? [];
  return times.map((at, index) => [at * 1000, values[index] ?? 0]);
}
