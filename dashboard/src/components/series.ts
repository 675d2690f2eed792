// Samples of usage over time. The server stores no history: a series begins when the page is opened.

import type { WorkloadUsageSnapshot } from "../api/schema";

const POINTS_MAX = 900;

export type Point = [at: number, value: number];
type Counter = "net_rx_bytes" | "net_tx_bytes" | "disk_read_bytes" | "disk_write_bytes";

export class Series {
  private samples: { at: number; usage: WorkloadUsageSnapshot }[] = [];

  /** Adds a sample; duplicates are ignored. */
  add(usage: WorkloadUsageSnapshot): void {
    const at = Date.parse(usage.collected_at ?? "");
    const last = this.samples.at(-1);
    if (!at || (last && at <= last.at)) return;
    this.samples.push({ at, usage });
    if (this.samples.length > POINTS_MAX) this.samples.shift();
  }

  values(name: "cpu_percent" | "memory_bytes"): Point[] {
    return this.samples.map(({ at, usage }) => [at, Number(usage[name] ?? 0)]);
  }

  /** The rate of counters per second. A decrease means that the counter was reset. */
  rates(...names: Counter[]): Point[] {
    const total = (usage: WorkloadUsageSnapshot) => names.reduce((sum, name) => sum + Number(usage[name] ?? 0), 0);
    return this.samples.flatMap(({ at, usage }, index) => {
      const before = this.samples[index - 1];
      return before ? [[at, Math.max(0, total(usage) - total(before.usage)) / ((at - before.at) / 1000)] satisfies Point] : [];
    });
  }
}
