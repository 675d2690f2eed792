// Components that several pages use.

import { segment } from "./api.js";
import { h } from "./dom.js";
import { ago, cores, dateTime, gigabytes, megabytes, percent, words } from "./format.js";
import { isAllowed } from "./state.js";

// A status is shown as a word and a symbol, not only by colour.
const MARKS = {
  Running: ["good", "●"], Ready: ["good", "●"], normal: ["good", "●"], drained: ["good", "●"],
  Pending: ["wait", "◔"], Scheduled: ["wait", "◔"], Updating: ["wait", "◔"], Deleting: ["wait", "◔"], Draining: ["wait", "◔"],
  draining: ["wait", "◔"], degraded: ["wait", "▲"], Stopped: ["idle", "■"], Unknown: ["wait", "?"],
  Failed: ["bad", "✕"], Unhealthy: ["bad", "▲"], NotReady: ["bad", "✕"], recovery: ["bad", "✕"], overdue: ["bad", "✕"],
};

export function status(word, shown = word) {
  const [tone, mark] = MARKS[word] ?? ["idle", "○"];
  return h("span", { class: `status ${tone}` }, h("span", { "aria-hidden": "true" }, mark), " ", shown || "–");
}

// A running workload that fails its health check is shown as unhealthy.
export function workloadStatus(view) {
  const unhealthy = view.reason?.code === "Unhealthy" || view.metadata?.["container.health"] === "unhealthy";
  return view.status === "Running" && unhealthy ? status("Unhealthy", "Running (unhealthy)") : status(view.status);
}

export const workloadLink = (id) => h("a", { href: `#/workloads/${segment(id)}` }, id);
export const nodeLink = (id) => (id ? h("a", { href: `#/nodes/${segment(id)}` }, id) : "–");

export const when = (at) => h("time", { datetime: at, "data-at": at, title: dateTime(at) }, ago(at));

/** Called every second: updates ages without redrawing the page. */
export function tick() {
  for (const element of document.querySelectorAll("time[data-at]")) {
    const text = ago(element.dataset.at);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** The reserved and the used share of a resource. */
function bar(name, { used, reserved, total, unit }) {
  const width = (value) => `${Math.min(100, percent(value, total))}%`;
  const hasUsage = used !== undefined;
  return h("div", { class: "gauge" },
    h("div", { class: "gauge-words" },
      h("strong", {}, name),
      h("span", {}, `${percent(reserved, total)} % reserved`, hasUsage && `, ${percent(used, total)} % used`)),
    h("svg", { class: "bar", "aria-hidden": "true", width: "100%", height: "12" },
      h("rect", { class: "bar-all", width: "100%", height: "12", rx: "3" }),
      h("rect", { class: "bar-reserved", width: width(reserved), height: "12", rx: "3" }),
      hasUsage && h("rect", { class: "bar-used", width: width(used), height: "5", y: "3.5", rx: "2" })),
    h("div", { class: "quiet small" }, `${unit(reserved)} reserved of ${unit(total)}`, hasUsage && `; ${unit(used)} used`));
}

/** CPU, memory and disk of one node or several. */
export function bars(nodes) {
  const { cpu, memory, disk } = totals(nodes);
  return h("div", { class: "gauges" },
    bar("CPU", { ...cpu, unit: cores }), bar("Memory", { ...memory, unit: megabytes }), bar("Disk", { ...disk, unit: gigabytes }));
}

/** Total, reserved and used resources of the nodes together. */
function totals(nodes) {
  const all = [...nodes];
  const sum = (read) => all.reduce((total, node) => total + Number(read(node) ?? 0), 0);
  const hasUsage = all.some((node) => node.usage);
  const used = (name, scale = 1) => (hasUsage ? sum((node) => node.usage?.[name]) / scale : undefined);
  const kind = (total, free, usedNow) => ({ total: sum(total), reserved: sum(total) - sum(free), used: usedNow });
  return {
    cpu: kind((node) => node.total_cpu_cores, (node) => node.available_cpu_cores, used("cpu_used_millicores", 1000)),
    memory: kind((node) => node.total_memory_mb, (node) => node.available_memory_mb, used("memory_used_mb")),
    disk: kind((node) => node.total_disk_gb, (node) => node.available_disk_gb, used("disk_used_gb")),
  };
}

/** A table with a header row. Cells are strings or elements. */
export function table(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h("table", { class: "cards", role: "table" },
    h("caption", { class: "visually-hidden" }, caption),
    headRow(heads),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, cellsOf(row, heads)))));
}

// Explicit roles: on a phone, rows are shown as cards, and browsers do not expose a table with another layout as one.
export const headRow = (heads, more = {}) =>
  h("thead", { role: "rowgroup" }, h("tr", { role: "row", ...more }, heads.map((head) => h("th", { scope: "col", role: "columnheader" }, head))));

export const cellsOf = (contents, heads) => contents.map((content, index) =>
  (index ? h("td", { role: "cell", "data-head": heads[index] }, content) : h("th", { role: "rowheader", scope: "row" }, content)));

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined && value !== "" && value !== null)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const card = (title, ...content) => h("section", { class: "card" }, h("h2", {}, title), content);

/** A timeline of events, newest first. */
export function timeline(events, { empty = "No events yet.", limit = 200, about = "" } = {}) {
  if (!events.length) return h("p", { class: "quiet" }, empty);
  return h("ol", { class: "timeline" }, events.slice(-limit).reverse().map((event) =>
    h("li", { "data-key": event.sequence, class: toneOf(event.kind) },
      when(event.at), " ", h("strong", {}, words(event.kind)), " ",
      event.workload_id && event.workload_id !== about && [workloadLink(event.workload_id), " "],
      event.node_id && event.node_id !== about && ["on ", nodeLink(event.node_id), " "],
      event.message && h("span", { class: "message" }, event.message))));
}

const toneOf = (kind) =>
  /Failed|NotReady|Unhealthy|TimedOut|Unplaceable|Unknown|Denied/.test(kind) ? "bad" : /Running|Ready|Healthy|Resolved/.test(kind) ? "good" : "";

/** A button for an action that requires a permission; without it, it is disabled and shows why. */
export function actionButton(permission, text, onclick, more = {}) {
  const allowed = isAllowed(permission);
  const why = allowed ? more.title : `Your role lacks the permission “${permission}”`;
  return h("button", { type: "button", ...more, onclick, disabled: !allowed || more.disabled, title: why }, text);
}
