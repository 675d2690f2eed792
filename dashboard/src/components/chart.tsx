// A line chart. The numbers are also shown as text; the canvas is decoration for those who see it.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { duration } from "../format";
import type { Point } from "./series";

const HEIGHT_PX = 90;

interface Props {
  name: string;
  points: Point[];
  unit: (value: number) => string;
}

export function Chart({ name, points, unit }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    if (!box.current) return undefined;
    const created = new uPlot(optionsOf(box.current, unit), dataOf(points), box.current);
    plot.current = created;
    const observer = new ResizeObserver(([entry]) => { if (entry) created.setSize({ width: entry.contentRect.width, height: HEIGHT_PX }); });
    observer.observe(box.current);
    return () => { observer.disconnect(); created.destroy(); };
  }, []);
  const last = points.at(-1);
  useEffect(() => plot.current?.setData(dataOf(points)), [points.length, last?.[0]]);
  return (
    <figure class="chart">
      <figcaption><strong>{name}</strong> {last ? unit(last[1]) : "–"}</figcaption>
      <div ref={box} class="plot" role="img" aria-label={labelOf(name, points, unit)} />
      <div class="quiet small">{points.length > 1 ? rangeOf(points, unit) : "waiting for the next sample …"}</div>
    </figure>
  );
}

const dataOf = (points: Point[]): uPlot.AlignedData => [points.map(([at]) => at / 1000), points.map(([, value]) => value)];

export function labelOf(name: string, points: Point[], unit: (value: number) => string): string {
  const last = points.at(-1);
  if (!last) return `${name}: –`;
  return points.length > 1 ? `${name}: now ${unit(last[1])}, ${rangeOf(points, unit)}` : `${name}: ${unit(last[1])}`;
}

function rangeOf(points: Point[], unit: (value: number) => string): string {
  const seconds = ((points.at(-1)?.[0] ?? 0) - (points[0]?.[0] ?? 0)) / 1000;
  return `maximum ${unit(Math.max(...points.map(([, value]) => value)))} in ${duration(seconds)}`;
}

function optionsOf(box: HTMLElement, unit: (value: number) => string): uPlot.Options {
  const colour = (name: string) => () => getComputedStyle(box).getPropertyValue(name);
  const axis = { stroke: colour("--chart-text"), grid: { stroke: colour("--chart-line"), width: 1 }, ticks: { show: false }, font: "10px system-ui" };
  return {
    width: box.clientWidth || 300,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { y: false },
    scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, size: 22 }, { ...axis, size: 58, values: (_plot, values) => values.map(unit) }],
    series: [{}, { stroke: colour("--chart-curve"), width: 2, points: { show: false } }],
  };
}
