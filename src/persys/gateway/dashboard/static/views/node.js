// One node: what it is, what it has, and taking it out of service.

import * as api from "../api.js";
import { confirm, perform } from "../dialog.js";
import { h } from "../dom.js";
import { counted } from "../format.js";
import { bars, card, deed, facts, status, table, timeline, when, workloadLink, workloadStatus } from "../parts.js";
import { nothing } from "../state.js";
import { shownStatus } from "./nodes.js";

const WORKLOADS_SHOWN = 200;

export const title = ({ id }) => id;
export const needs = () => ({ nodes: true });

export function open({ id }, { redraw }) {
  let held = null, past = null, readAt = 0, seen = null;

  async function read() {
    readAt = Date.now();
    try {
      const [workloads, events] = await Promise.all([
        api.get(`/workloads?node_id=${api.part(id)}&limit=${WORKLOADS_SHOWN}`),
        api.events({ node_id: id, limit: 50 }),
      ]);
      held = workloads.workloads ?? [];
      past = events.events;
      redraw();
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem; // the banner tells
    }
  }

  return {
    draw(state) {
      const node = state.nodes.get(id);
      const last = state.events.at(-1)?.sequence;
      if (last !== seen || Date.now() - readAt > 10000) { seen = last; read(); }
      const head = h("h1", { tabindex: "-1" }, id);
      if (!node) return [head, h("p", { class: "quiet" }, nothing(state.nodesRead, "The node does not exist."))];
      return [head, h("p", { class: "row" }, status(node.status, shownStatus(node)), buttons(node)), drain(node), body(node, held, past)];
    },
  };
}

function buttons(node) {
  const id = node.node_id;
  const post = (verb, body) => () => api.ask("POST", `/nodes/${api.part(id)}/${verb}`, body);
  const cordon = async () => {
    const sure = await confirm({ title: `Cordon ${id}?`, text: "It gets no new workloads. Its present workloads keep running.", verb: "Cordon" });
    if (sure) await perform(post("cordon"), `${id} is cordoned.`);
  };
  const drainIt = async () => {
    const field = h("p", {}, h("label", { for: "deadline" }, "Deadline in minutes (empty: none) "),
      h("input", { id: "deadline", name: "minutes", type: "number", min: "1", max: "100000" }));
    const answer = await confirm({ title: `Drain ${id}?`, text: "It gets no new workloads, and workloads without local data move to other nodes.", verb: "Drain", danger: true, fields: [field] });
    const seconds = String(60 * Number(answer?.minutes || 0));
    if (answer) await perform(post("drain", { deadline_seconds: seconds }), `${id} is being drained.`);
  };
  const isClosed = node.cordoned || node.drain;
  return h("span", { class: "row" },
    isClosed && deed("nodes", "Uncordon", () => perform(post("uncordon"), `${id} is schedulable again.`)),
    !isClosed && deed("nodes", "Cordon …", cordon),
    !node.drain && deed("nodes", "Drain …", drainIt, { class: "danger" }));
}

function drain({ drain: view }) {
  if (!view) return null;
  const left = view.remaining ?? 0;
  return h("section", { class: "card", "aria-live": "polite" }, h("h2", {}, "Drain"),
    h("p", {}, status(view.state), ` ${counted(left, "workload")} still there`,
      view.deadline_at && [", deadline ", when(view.deadline_at)], ", begun ", when(view.started_at)),
    view.blocked?.length > 0 && table("Workloads that block the drain", ["Workload", "Reason"],
      view.blocked.map((block) => [workloadLink(block.workload_id), block.reason ?? ""]), ""));
}

function body(node, held, past) {
  const labels = Object.entries(node.labels ?? {}).map(([name, value]) => h("li", { class: "tag" }, `${name}=${value}`));
  const taints = (node.taints ?? []).map((taint) => h("li", { class: "tag" }, taint));
  return h("div", { class: "grid" },
    card("Room", bars([node])),
    h("section", { class: "card two" }, h("h2", {}, "About"), facts([
      ["Reason", node.status_reason],
      ["Heartbeat", when(node.last_heartbeat)],
      ["Types", (node.supported_workload_types ?? []).join(", ")],
      ["Labels", labels.length ? h("ul", { class: "tags" }, labels) : "none"],
      ["Taints", taints.length ? h("ul", { class: "tags" }, taints) : "none"],
      ["Agent", node.agent_version],
      ["Address", node.grpc_endpoint],
      ["Clock ahead", node.clock_skew_ms && `${node.clock_skew_ms} ms`],
    ])),
    h("section", { class: "card wide" }, h("h2", {}, `Workloads (${node.workload_count ?? 0})`),
      held === null ? h("p", { class: "quiet" }, "Loading …")
        : table("Workloads of the node", ["Workload", "Status", "Type", "Updated"],
          held.map((view) => [workloadLink(view.workload_id), workloadStatus(view), view.type ?? "", when(view.last_updated)]),
          "No workloads.")),
    h("section", { class: "card wide" }, h("h2", {}, "Events"), past ? timeline(past, { about: node.node_id }) : h("p", { class: "quiet" }, nothing(false))));
}
