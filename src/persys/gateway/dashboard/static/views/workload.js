// One workload's life: how it is and why, what happened, what it uses and says, and what can be done.

import * as api from "../api.js";
import { Series, chart } from "../charts.js";
import { confirm, perform } from "../dialog.js";
import { announce, h } from "../dom.js";
import { bytes, clock } from "../format.js";
import { Log } from "../logs.js";
import { card, deed, facts, nodeLink, table, timeline, when, workloadStatus } from "../parts.js";
import { nothing } from "../state.js";
import { explanation } from "./explain.js";

export const title = ({ id }) => id;
export const needs = ({ id }) => ({ workload: id });

export function open({ id }, { redraw }) {
  const series = new Series();
  let log = null, past = null, reasons = null, seen = null, said = "";

  async function read() {
    const path = api.part(id);
    const [events, explained] = await Promise.allSettled([
      api.events({ workload_id: id, limit: 200 }), api.get(`/workloads/${path}/explain`),
    ]);
    if (events.status === "fulfilled") past = events.value.events;
    if (explained.status === "fulfilled") reasons = explained.value;
    redraw();
  }

  function hear(view) {
    if (said && said !== view.status) announce(`${id} is ${view.status}`);
    said = view.status;
  }

  return {
    draw(state) {
      const view = state.workloads.get(id);
      const head = h("h1", { tabindex: "-1" }, id);
      const news = `${state.events.findLast((event) => event.workload_id === id)?.sequence}${view?.status}`;
      if (news !== seen) { seen = news; read(); }
      if (!view) return [head, absent(id, state, past)];
      hear(view);
      if (view.usage) series.add(view.usage);
      log ??= new Log(id);
      return [head, h("p", { class: "row" }, workloadStatus(view), buttons(view)), why(view),
        h("div", { class: "grid" }, about(view), runtime(view), explained(reasons), usage(series), events(past, id), history(view), spec(view),
          h("section", { class: "card wide" }, h("h2", {}, "Log"), log.element))];
    },
    close: () => log?.close(),
  };
}

function absent(id, state, past) {
  const text = nothing(state.absent.has(id), "The workload does not exist; it may have been deleted.");
  return [h("p", { class: "quiet" }, text), past?.length > 0 && card("Events", timeline(past))];
}

function buttons(view) {
  const id = view.workload_id, path = `/workloads/${api.part(id)}`;
  const sure = async (question, work, done) => { if (await confirm(question)) await perform(work, done); };
  const wants = (desired) => api.ask("PUT", path, { desired_state: desired });
  const isStopped = view.desired_state === "Stopped";
  const isGoing = view.desired_state === "Deleted";
  return h("span", { class: "row" },
    deed("workloads", "Retry", () => perform(() => api.ask("POST", `${path}/retry`), `${id} is being retried.`), { disabled: isGoing || view.status !== "Failed" }),
    deed("workloads", "Redeploy …", () => sure(
      { title: `Redeploy ${id}?`, text: "It is recreated from the same spec, with the current image tag or commit.", verb: "Redeploy" },
      () => api.ask("POST", `${path}/redeploy`), `${id} is being redeployed.`), { disabled: isGoing }),
    isStopped
      ? deed("workloads", "Start", () => perform(() => wants("Running"), `${id} is being started.`))
      : deed("workloads", "Stop …", () => sure(
        { title: `Stop ${id}?`, text: "It keeps its node and its data, and can be started again.", verb: "Stop" },
        () => wants("Stopped"), `${id} is being stopped.`), { disabled: isGoing }),
    deed("workloads", "Delete …", () => sure(
      { title: `Delete ${id}?`, text: "It is stopped and removed, with all volumes that are not retained. This cannot be undone.", verb: "Delete", danger: true },
      () => api.ask("DELETE", path), `${id} is being deleted.`), { class: "danger", disabled: isGoing }));
}

function why(view) {
  const { reason } = view;
  if (!reason?.message && !reason?.code) return null;
  return h("p", { class: view.status === "Failed" ? "callout bad" : "callout" },
    reason.code && h("strong", {}, `${reason.code}: `), reason.message ?? "",
    reason.next_retry_at && [" Next try ", when(reason.next_retry_at), "."]);
}

function about(view) {
  const labels = Object.entries({ ...view.spec?.metadata, ...view.spec?.container?.labels });
  return card("About", facts([
    ["Wanted", view.desired_state],
    ["Type", view.type],
    ["Node", nodeLink(view.assigned_node_id)],
    ["Placement", view.placement],
    ["Image", view.spec?.container?.image ?? view.spec?.vm?.os_image],
    ["Revision", view.revision_id],
    ["Updated", when(view.last_updated)],
    ["Attempts", view.retry_attempts && `${view.retry_attempts} of ${view.retry_max_attempts}`],
    ["Labels", labels.length > 0 && h("ul", { class: "tags" }, labels.map(([name, value]) => h("li", { class: "tag" }, `${name}=${value}`)))],
  ].filter(([, value]) => value)));
}

const several = (text) => (text ? h("ul", { class: "tags" }, text.split(",").map((one) => h("li", { class: "tag" }, one))) : "");

/** What the runtime of its node tells of it. */
function runtime({ metadata: told = {} }) {
  const pairs = [
    ["Ports", several(told["container.ports"])],
    ["Services", several(told["compose.services"])],
    ["Addresses", several(told["vm.ip_addresses"])],
    ["Restarts", told["container.restart_count"]],
    ["Exit code", told["container.exit_code"]],
    ["Health", told["container.health"]],
    ["State", told["container.state"] ?? told["vm.domain_state"]],
    ["Commit", told["compose.commit"]],
    ["Started", told["container.started_at"] && when(told["container.started_at"])],
    ["Ended", told["container.finished_at"] && when(told["container.finished_at"])],
  ];
  return pairs.some(([, value]) => value) ? card("Runtime", facts(pairs)) : null;
}

function usage(series) {
  const perSecond = (value) => `${bytes(value)}/s`;
  return h("section", { class: "card wide" }, h("h2", {}, "Usage since you opened this page"), h("div", { class: "charts" },
    chart("Cpu", series.values("cpu_percent"), (value) => `${value.toFixed(1)} %`),
    chart("Memory", series.values("memory_bytes"), bytes),
    chart("Network", series.rates("net_rx_bytes", "net_tx_bytes"), perSecond),
    chart("Disk", series.rates("disk_read_bytes", "disk_write_bytes"), perSecond)));
}

const explained = (answer) => h("section", { class: "card two" }, h("h2", {}, "Placement"),
  answer ? explanation(answer) : h("p", { class: "quiet" }, "Loading …"));

const events = (past, id) => h("section", { class: "card wide" }, h("h2", {}, "Events"),
  past ? timeline(past, { about: id }) : h("p", { class: "quiet" }, "Loading …"));

function history(view) {
  return h("section", { class: "card wide" }, h("h2", {}, "Actions of its node"),
    table("Actions", ["Action", "Result", "Node", "Begun", "Ended", "Error"],
      (view.history ?? []).map((done) => [done.action_type ?? "", done.status ?? "", nodeLink(done.node_id), clock(done.started_at), clock(done.ended_at), done.error ?? ""]),
      "No operation has timed out."));
}

const spec = (view) => h("section", { class: "card wide" }, h("h2", {}, "Spec"),
  h("details", {}, h("summary", {}, "Show the spec"), h("pre", { class: "log", tabindex: "0", "aria-label": "Spec" }, JSON.stringify(view.spec ?? {}, null, 2))));
