// Overview of the cluster.

import { h } from "../dom.js";
import { counted } from "../format.js";
import { bars, card, nodeLink, status, timeline, when } from "../components.js";
import { emptyText } from "../state.js";

const EVENTS_SHOWN = 12;
const STATUSES = [["running_workloads", "Running"], ["pending_workloads", "Pending"], ["failed_workloads", "Failed"], ["deleted_workloads", "Deleting"]];

export const title = () => "Overview";
export const needs = () => ({ summary: true, nodes: true, capacity: true });

export function open() {
  return { draw: (state) => [h("h1", { tabindex: "-1" }, "Overview"), h("div", { class: "grid" }, sections(state))] };
}

const sections = (state) => [
  card("Workloads", workloads(state.summary)),
  card("Nodes", nodes(state)),
  card("Control plane", mode(state.mode)),
  h("section", { class: "card wide" }, h("h2", {}, "Capacity"), capacity(state)),
  h("section", { class: "card wide" }, h("h2", {}, "Latest events"),
    timeline(state.events, { limit: EVENTS_SHOWN, empty: emptyText(state.eventsRead, "No events yet.") }), h("p", {}, h("a", { href: "#/events" }, "All events"))),
];

function workloads(summary) {
  if (!summary) return placeholder();
  const counts = STATUSES.map(([field, word]) => [word, summary[field] ?? 0]);
  const total = summary.total_workloads ?? 0;
  const others = total - counts.reduce((sum, [, count]) => sum + count, 0);
  const row = (word, count, query) => h("li", {}, h("a", { href: `#/workloads${query}` }, status(word)), h("span", { class: "number" }, String(count)));
  return [
    h("p", { class: "figure" }, String(total), h("span", { class: "quiet" }, total === 1 ? " workload" : " workloads")),
    h("ul", { class: "counts" },
      counts.map(([word, count]) => row(word, count, `?status=${word}`)),
      others > 0 && h("li", {}, h("span", {}, "Others"), h("span", { class: "number" }, String(others)))),
  ];
}

function nodes({ summary, nodes: known, capacity }) {
  if (!summary) return placeholder();
  const notReady = [...known.values()].filter((node) => node.status !== "Ready");
  return [
    h("p", { class: "figure" }, `${summary.ready_nodes ?? 0} of ${summary.total_nodes ?? 0}`, h("span", { class: "quiet" }, " ready")),
    notReady.length > 0 && h("ul", { class: "counts" }, notReady.slice(0, 5).map((node) =>
      h("li", {}, nodeLink(node.node_id), status(node.status)))),
    redundancy(capacity, summary.total_nodes ?? 0),
  ];
}

/** N+1: whether the cluster tolerates the loss of any one node. */
function redundancy(capacity, count) {
  if (!capacity || !count) return null;
  if (capacity.survives_any_loss) return h("p", {}, status("Ready", "Tolerates the loss of any one node"));
  const worst = (capacity.losses ?? []).filter((loss) => loss.stranded?.length).sort((a, b) => b.stranded.length - a.stranded.length)[0];
  if (!worst) return h("p", {}, status("degraded", "Does not tolerate the loss of every node"));
  return h("p", {}, status("degraded", "No spare node"), ": without ", nodeLink(worst.node_id),
    `, ${counted(worst.stranded.length, "workload")} would be unplaceable`);
}

function mode(view) {
  if (!view) return placeholder();
  return [
    h("p", { class: "figure" }, status(view.mode)),
    view.reason && h("p", {}, view.reason),
    view.since && h("p", { class: "quiet" }, "since ", when(view.since)),
    view.leader && h("p", { class: "quiet" }, `leader ${view.leader}`),
    view.next_steps?.length > 0 && h("ul", {}, view.next_steps.map((step) => h("li", {}, step))),
  ];
}

const placeholder = () => h("p", { class: "quiet" }, emptyText(false));

const capacity = ({ nodes: known, nodesRead }) =>
  (known.size ? bars(known.values()) : h("p", { class: "quiet" }, emptyText(nodesRead, "No node has joined yet.")));
