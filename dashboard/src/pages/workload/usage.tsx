// The usage of a workload since the page was opened.

import { useRef } from "preact/hooks";
import type { WorkloadView } from "../../api/schema";
import { Card } from "../../components/card";
import { Chart } from "../../components/chart";
import { Series } from "../../components/series";
import { bytes } from "../../format";

const percent = (value: number): string => `${value.toFixed(1)} %`;
const perSecond = (value: number): string => `${bytes(value)}/s`;

export function Usage({ view }: { view: WorkloadView }) {
  const { current: series } = useRef(new Series());
  if (view.usage) series.add(view.usage);
  return (
    <Card title="Usage since this page was opened" width="wide">
      <div class="charts">
        <Chart name="CPU" points={series.values("cpu_percent")} unit={percent} />
        <Chart name="Memory" points={series.values("memory_bytes")} unit={bytes} />
        <Chart name="Network" points={series.rates("net_rx_bytes", "net_tx_bytes")} unit={perSecond} />
        <Chart name="Disk" points={series.rates("disk_read_bytes", "disk_write_bytes")} unit={perSecond} />
      </div>
    </Card>
  );
}
