// One node: status, resources, workloads, events, and the actions cordon and drain.

import * as api from "../api.js";
import { confirm, perform } from "../dialog.js";
import { h } from "../dom.js";
import { counted } from "../format.js";
import { actionButton, bars, card, facts, status, table, timeline, when, workloadLink, workloadStatus } from "../components.js";
import { emptyText } from "../state.js";
import { shownStatus } from "./nodes.js";

const WORKLOADS_SHOWN = 200;

export const title = ({ id }) => id;
export const needs = () => ({ nodes: true });

export function open({ id }, { redraw }) {
  let assigned = null, recent = null, readAt = 0, seen = null;

  async function read() {
    readAt = Date.now();
    try {
      const [workloads, events] = await Promise.all([
        api.get(`/workloads?node_id=${api.segment(id)}&limit=${WORKLOADS_SHOWN}`),
        api.events({ node_id: id, limit: 50 }),
      ]);
      assigned = workloads.workloads ?? [];
      recent = events.events;
      redraw();
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem; // shown in the banner
    }
  }

  return {
    draw(state) {
      const node = state.nodes.get(id);
      const last = state.events.at(-1)?.sequence;
      if (last !== seen || Date.now() - readAt > 10000) { seen = last; read(); }
      const head = h("h1", { tabindex: "-1" }, id);
      if (!node) return [head, h("p", { class: "quiet" }, emptyText(state.nodesRead, "The node does not exist."))];
      return [head, h("p", { class: "row" }, status(node.status, shownStatus(node)), buttons(node)), drain(node), body(node, assigned, recent)];
    },
  };
}

function buttons(node) {
  const id = node.node_id;
  const post = (verb, body) => () => api.change("POST", `/nodes/${api.segment(id)}/${verb}`, body);
  const cordon = async () => {
    const confirmed = await confirm({ title: `Cordon ${id}?`, text: "It gets no new workloads. Its workloads continue to run.", verb: "Cordon" });
    if (confirmed) await perform(post("cordon"), `${id} is cordoned.`);
  };
  const startDrain = async () => {
    const field = h("p", {}, h("label", { for: "deadline" }, "Deadline in minutes (empty: none) "),
      h("input", { id: "deadline", name: "minutes", type: "number", min: "1", max: "100000" }));
    const answer = await confirm({ title: `Drain ${id}?`, text: "It gets no new workloads, and workloads without local data move to other nodes.", verb: "Drain", danger: true, fields: [field] });
    const seconds = String(60 * Number(answer?.minutes || 0));
    if (answer) await perform(post("drain", { deadline_seconds: seconds }), `${id} is being drained.`);
  };
  const isClosed = node.cordoned || node.drain;
  return h("span", { class: "row" },
    isClosed && actionButton("nodes", "Uncordon", () => perform(post("uncordon"), `${id} is schedulable again.`)),
    !isClosed && actionButton("nodes", "Cordon …", cordon),
    !node.drain && actionButton("nodes", "Drain …", startDrain, { class: "danger" }));
}

function drain({ drain: view }) {
  if (!view) return null;
  const left = view.remaining ?? 0;
  return h("section", { class: "card", "aria-live": "polite" }, h("h2", {}, "Drain"),
    h("p", {}, status(view.state), ` ${counted(left, "workload")} remaining`,
      view.deadline_at && [", deadline ", when(view.deadline_at)], ", started ", when(view.started_at)),
    view.blocked?.length > 0 && table("Workloads that block the drain", ["Workload", "Reason"],
      view.blocked.map((block) => [workloadLink(block.workload_id), block.reason ?? ""]), ""));
}

function body(node, assigned, recent) {
  const labels = Object.entries(node.labels ?? {}).map(([name, value]) => h("li", { class: "tag" }, `${name}=${value}`));
  const taints = (node.taints ?? []).map((taint) => h("li", { class: "tag" }, taint));
  return h("div", { class: "grid" },
    card("Capacity", bars([node])),
    h("section", { class: "card two" }, h("h2", {}, "Details"), facts([
      ["Reason", node.status_reason],
      ["Heartbeat", when(node.last_heartbeat)],
      ["Types", (node.supported_workload_types ?? []).join(", ")],
      ["Labels", labels.length ? h("ul", { class: "tags" }, labels) : "none"],
      ["Taints", taints.length ? h("ul", { class: "tags" }, taints) : "none"],
      ["Agent", node.agent_version],
      ["Address", node.grpc_endpoint],
      ["Clock skew", node.clock_skew_ms && `${node.clock_skew_ms} ms`],
    ])),
    h("section", { class: "card wide" }, h("h2", {}, `Workloads (${node.workload_count ?? 0})`),
      assigned === null ? h("p", { class: "quiet" }, "Loading …")
        : table("Workloads of the node", ["Workload", "Status", "Type", "Updated"],
          assigned.map((view) => [workloadLink(view.workload_id), workloadStatus(view), view.type ?? "", when(view.last_updated)]),
          "No workloads.")),
    h("section", { class: "card wide" }, h("h2", {}, "Events"), recent ? timeline(recent, { about: node.node_id }) : h("p", { class: "quiet" }, emptyText(false))));
}
