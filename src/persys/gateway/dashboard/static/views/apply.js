// Applies a spec after a preview of its changes. Exactly the previewed requests are applied.

import * as api from "../api.js";
import { notice } from "../dialog.js";
import { announce, h } from "../dom.js";
import { counted } from "../format.js";
import { refresh } from "../sync.js";
import { actionButton, nodeLink, status, table, workloadLink } from "../components.js";

const EXAMPLE = `id: web
type: container
container:
  image: nginx:alpine
resources:
  cpu_millicores: 100
  memory_mb: 64
`;

export const title = () => "Apply";
export const needs = () => ({});

export function open(route, { redraw }) {
  let text = "", requests = null, plans = null, errorText = "", results = [], isBusy = false;

  async function whileBusy(work) {
    isBusy = true;
    errorText = "";
    redraw();
    try {
      await work();
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem;
      errorText = `${problem.more.line ? `Line ${problem.more.line}: ` : ""}${problem.message}`;
      announce(errorText);
    }
    isBusy = false;
    redraw();
  }

  const preview = () => whileBusy(async () => {
    plans = null;
    results = [];
    requests = (await api.parseSpecs(text)).workloads;
    plans = (await api.query("/plan", { workloads: requests })).plans ?? [];
    announce(`Plan: ${summary(plans)}`);
  });

  const apply = () => whileBusy(async () => {
    for (const request of requests) {
      await api.change("PUT", `/workloads/${api.segment(request.workload_id)}`, request);
      results.push(request.workload_id);
    }
    plans = null;
    notice(`${counted(results.length, "workload")} applied.`, false);
    refresh();
  });

  function edit(value) {
    text = value;
    if (plans) { plans = null; redraw(); }
  }

  async function load(event) {
    const file = event.target.files[0];
    if (!file) return;
    edit(await file.text());
    document.getElementById("spec").value = text;
  }

  return {
    draw: () => [
      h("h1", { tabindex: "-1" }, "Apply a spec"),
      h("p", {}, "YAML or JSON, as for persysctl apply; a file may contain several documents."),
      h("p", {}, h("label", { for: "spec-file" }, "Load a file "), h("input", { id: "spec-file", type: "file", accept: ".yaml,.yml,.json", onchange: load })),
      h("label", { for: "spec" }, "Spec"),
      h("textarea", { id: "spec", rows: "14", spellcheck: "false", autocapitalize: "off", placeholder: EXAMPLE, oninput: (event) => edit(event.target.value) }),
      h("p", { class: "row" },
        h("button", { type: "button", onclick: preview, disabled: isBusy }, "Preview"),
        plans && actionButton("workloads", `Apply ${counted(plans.length, "workload")}`, apply, { class: "primary", disabled: isBusy || plans.some((plan) => plan.action === "refused") })),
      errorText && h("p", { class: "callout bad", role: "alert" }, errorText),
      plans && planned(plans),
      results.length > 0 && h("section", { class: "card" }, h("h2", {}, "Applied"), h("ul", {}, results.map((id) => h("li", {}, workloadLink(id))))),
    ],
  };
}

function summary(plans) {
  const counts = Map.groupBy(plans, (plan) => plan.action === "none" ? "unchanged" : plan.action);
  return [...counts].map(([action, group]) => `${group.length} ${action}`).join(", ");
}

const planned = (plans) => h("section", { class: "card" }, h("h2", {}, "Plan"), h("p", {}, `${summary(plans)}. Nothing was written.`), plans.map(planView));

const TONE = { create: "Running", update: "Pending", delete: "Failed", refused: "Failed" };

function planView(plan) {
  const where = plan.node_id && ["on ", nodeLink(plan.node_id), plan.current_node_id && plan.current_node_id !== plan.node_id && ` (now on ${plan.current_node_id})`];
  return h("div", { class: "plan" },
    h("h3", {}, plan.workload_id, " ", status(TONE[plan.action] ?? "Stopped", plan.action === "none" ? "unchanged" : plan.action)),
    h("p", {}, where, plan.would_wait && h("strong", {}, " would be pending "), " ", plan.reason ?? ""),
    plan.changes?.length > 0 && table("Changes", ["Field", "Before", "After"],
      plan.changes.map((change) => [change.field, h("code", {}, change.before ?? ""), h("code", {}, change.after ?? "")]), ""),
    plan.displaces?.length > 0 && h("ul", {}, plan.displaces.map((line) => h("li", {}, line))));
}
