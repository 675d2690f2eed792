// Values and rates of usage samples.

import { expect, test } from "vitest";
import { labelOf } from "./chart";
import { Series } from "./series";

function aSeries(...samples: [second: number, bytes: number][]): Series {
  const series = new Series();
  for (const [second, bytes] of samples) {
    series.add({ collected_at: new Date(second * 1000).toISOString(), net_rx_bytes: `${bytes}`, memory_bytes: `${bytes}` });
  }
  return series;
}

test("rates are per second, and a repeated sample is ignored", () => {
  const rates = aSeries([10, 100], [20, 300], [20, 300], [30, 700]).rates("net_rx_bytes", "net_tx_bytes");

  expect(rates).toEqual([[20_000, 20], [30_000, 40]]);
});

test("a counter that was reset has no negative rate", () => {
  expect(aSeries([10, 500], [20, 10]).rates("net_rx_bytes")).toEqual([[20_000, 0]]);
});

test("a chart is described in words", () => {
  const unit = (value: number) => `${value} B`;
  const points = aSeries([10, 100], [20, 300], [30, 200]).values("memory_bytes");

  expect(labelOf("Memory", points, unit)).toBe("Memory: now 200 B, maximum 300 B in 20 s");
  expect(labelOf("Memory", [], unit)).toBe("Memory: –");
});
