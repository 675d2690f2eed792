// Line charts of the usage since the page was opened. The server stores no history.

import { h } from "./dom.js";
import { duration } from "./format.js";

const WIDTH = 300, HEIGHT = 70, POINTS_MAX = 300;

export class Series {
  constructor() {
    this.samples = [];
  }

  /** Adds a sample; duplicates are ignored. */
  add(usage) {
    const at = Date.parse(usage.collected_at);
    const last = this.samples.at(-1);
    if (!at || (last && at <= last.at)) return;
    this.samples.push({ at, usage });
    if (this.samples.length > POINTS_MAX) this.samples.shift();
  }

  values(name) {
    return this.samples.map(({ at, usage }) => [at, Number(usage[name] ?? 0)]);
  }

  /** The rate of counters per second. A decrease means that the counter was reset. */
  rates(...names) {
    const total = (usage) => names.reduce((sum, name) => sum + Number(usage[name] ?? 0), 0);
    return this.samples.slice(1).map(({ at, usage }, index) => {
      const before = this.samples[index];
      return [at, Math.max(0, total(usage) - total(before.usage)) / ((at - before.at) / 1000)];
    });
  }
}

export function chart(name, points, unit) {
  const latest = points.length ? unit(points.at(-1)[1]) : "–";
  const top = Math.max(...points.map(([, value]) => value), 1e-9);
  const [from, to] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 1];
  const x = (at) => (to > from ? (WIDTH * (at - from)) / (to - from) : WIDTH);
  const y = (value) => HEIGHT - 4 - ((HEIGHT - 8) * value) / top;
  const line = points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const label = points.length > 1
    ? `${name}: now ${latest}, maximum ${unit(top)} in the last ${duration((to - from) / 1000)}`
    : `${name}: ${latest}`;
  return h("figure", { class: "chart" },
    h("figcaption", {}, h("strong", {}, name), " ", latest),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
      h("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 4, y2: HEIGHT - 4, class: "axis" }),
      points.length > 1 && h("path", { d: line, class: "curve" })),
    h("div", { class: "quiet small" }, points.length > 1 ? `maximum ${unit(top)} in ${duration((to - from) / 1000)}` : "waiting for the next sample …"));
}
