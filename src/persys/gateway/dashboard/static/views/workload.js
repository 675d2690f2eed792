// One workload: status and reason, placement, usage, events, log, and its actions.

import * as api from "../api.js";
import { Series, chart } from "../charts.js";
import { confirm, perform } from "../dialog.js";
import { announce, h } from "../dom.js";
import { bytes, timeOfDay } from "../format.js";
import { Log } from "../logs.js";
import { actionButton, card, facts, nodeLink, table, timeline, when, workloadStatus } from "../components.js";
import { emptyText } from "../state.js";
import { explanation } from "./explain.js";

export const title = ({ id }) => id;
export const needs = ({ id }) => ({ workload: id });

export function open({ id }, { redraw }) {
  const series = new Series();
  let log = null, recent = null, placement = null, seen = null, lastStatus = "";

  async function read() {
    const path = api.segment(id);
    const [events, explained] = await Promise.allSettled([
      api.events({ workload_id: id, limit: 200 }), api.get(`/workloads/${path}/explain`),
    ]);
    if (events.status === "fulfilled") recent = events.value.events;
    if (explained.status === "fulfilled") placement = explained.value;
    redraw();
  }

  function announceStatus(view) {
    if (lastStatus && lastStatus !== view.status) announce(`${id} is ${view.status}`);
    lastStatus = view.status;
  }

  return {
    draw(state) {
      const view = state.workloads.get(id);
      const head = h("h1", { tabindex: "-1" }, id);
      const version = `${state.events.findLast((event) => event.workload_id === id)?.sequence}${view?.status}`;
      if (version !== seen) { seen = version; read(); }
      if (!view) return [head, absent(id, state, recent)];
      announceStatus(view);
      if (view.usage) series.add(view.usage);
      log ??= new Log(id);
      return [head, h("p", { class: "row" }, workloadStatus(view), buttons(view)), why(view),
        h("div", { class: "grid" }, about(view), runtime(view), explained(placement), usage(series), events(recent, id), history(view), spec(view),
          h("section", { class: "card wide" }, h("h2", {}, "Log"), log.element))];
    },
    close: () => log?.close(),
  };
}

function absent(id, state, recent) {
  const text = emptyText(state.absent.has(id), "The workload does not exist; it may have been deleted.");
  return [h("p", { class: "quiet" }, text), recent?.length > 0 && card("Events", timeline(recent))];
}

function buttons(view) {
  const id = view.workload_id, path = `/workloads/${api.segment(id)}`;
  const withConfirmation = async (question, work, done) => { if (await confirm(question)) await perform(work, done); };
  const setDesired = (desired) => api.change("PUT", path, { desired_state: desired });
  const isStopped = view.desired_state === "Stopped";
  const isDeleted = view.desired_state === "Deleted";
  return h("span", { class: "row" },
    actionButton("workloads", "Retry", () => perform(() => api.change("POST", `${path}/retry`), `${id} is being retried.`), { disabled: isDeleted || view.status !== "Failed" }),
    actionButton("workloads", "Redeploy …", () => withConfirmation(
      { title: `Redeploy ${id}?`, text: "It is recreated from the same spec, with the current image tag or commit.", verb: "Redeploy" },
      () => api.change("POST", `${path}/redeploy`), `${id} is being redeployed.`), { disabled: isDeleted }),
    isStopped
      ? actionButton("workloads", "Start", () => perform(() => setDesired("Running"), `${id} is being started.`))
      : actionButton("workloads", "Stop …", () => withConfirmation(
        { title: `Stop ${id}?`, text: "It keeps its node and its data, and can be started again.", verb: "Stop" },
        () => setDesired("Stopped"), `${id} is being stopped.`), { disabled: isDeleted }),
    actionButton("workloads", "Delete …", () => withConfirmation(
      { title: `Delete ${id}?`, text: "It is stopped and removed, with all volumes that are not retained. This cannot be undone.", verb: "Delete", danger: true },
      () => api.change("DELETE", path), `${id} is being deleted.`), { class: "danger", disabled: isDeleted }));
}

function why(view) {
  const { reason } = view;
  if (!reason?.message && !reason?.code) return null;
  return h("p", { class: view.status === "Failed" ? "callout bad" : "callout" },
    reason.code && h("strong", {}, `${reason.code}: `), reason.message ?? "",
    reason.next_retry_at && [" Next retry ", when(reason.next_retry_at), "."]);
}

function about(view) {
  const labels = Object.entries({ ...view.spec?.metadata, ...view.spec?.container?.labels });
  return card("Details", facts([
    ["Desired state", view.desired_state],
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

const tagList = (text) => (text ? h("ul", { class: "tags" }, text.split(",").map((one) => h("li", { class: "tag" }, one))) : "");

/** What the runtime of the node reports. */
function runtime({ metadata: reported = {} }) {
  const pairs = [
    ["Ports", tagList(reported["container.ports"])],
    ["Services", tagList(reported["compose.services"])],
    ["Addresses", tagList(reported["vm.ip_addresses"])],
    ["Restarts", reported["container.restart_count"]],
    ["Exit code", reported["container.exit_code"]],
    ["Health", reported["container.health"]],
    ["State", reported["container.state"] ?? reported["vm.domain_state"]],
    ["Commit", reported["compose.commit"]],
    ["Started", reported["container.started_at"] && when(reported["container.started_at"])],
    ["Ended", reported["container.finished_at"] && when(reported["container.finished_at"])],
  ];
  return pairs.some(([, value]) => value) ? card("Runtime", facts(pairs)) : null;
}

function usage(series) {
  const perSecond = (value) => `${bytes(value)}/s`;
  return h("section", { class: "card wide" }, h("h2", {}, "Usage since this page was opened"), h("div", { class: "charts" },
    chart("CPU", series.values("cpu_percent"), (value) => `${value.toFixed(1)} %`),
    chart("Memory", series.values("memory_bytes"), bytes),
    chart("Network", series.rates("net_rx_bytes", "net_tx_bytes"), perSecond),
    chart("Disk", series.rates("disk_read_bytes", "disk_write_bytes"), perSecond)));
}

const explained = (response) => h("section", { class: "card two" }, h("h2", {}, "Placement"),
  response ? explanation(response) : h("p", { class: "quiet" }, "Loading …"));

const events = (recent, id) => h("section", { class: "card wide" }, h("h2", {}, "Events"),
  recent ? timeline(recent, { about: id }) : h("p", { class: "quiet" }, "Loading …"));

function history(view) {
  return h("section", { class: "card wide" }, h("h2", {}, "Actions on its nodes"),
    table("Actions", ["Action", "Result", "Node", "Started", "Ended", "Error"],
      (view.history ?? []).map((done) => [done.action_type ?? "", done.status ?? "", nodeLink(done.node_id), timeOfDay(done.started_at), timeOfDay(done.ended_at), done.error ?? ""]),
      "No actions."));
}

const spec = (view) => h("section", { class: "card wide" }, h("h2", {}, "Spec"),
  h("details", {}, h("summary", {}, "Show the spec"), h("pre", { class: "log", tabindex: "0", "aria-label": "Spec" }, JSON.stringify(view.spec ?? {}, null, 2))));
