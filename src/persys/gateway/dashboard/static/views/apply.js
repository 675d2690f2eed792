// A spec, what it would change, and then the deed. What was previewed is what is applied.

import * as api from "../api.js";
import { notice } from "../dialog.js";
import { announce, h } from "../dom.js";
import { counted } from "../format.js";
import { refresh } from "../live.js";
import { deed, nodeLink, status, table, workloadLink } from "../parts.js";

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
  let text = "", requests = null, plans = null, trouble = "", results = [], isBusy = false;

  async function busily(work) {
    isBusy = true;
    trouble = "";
    redraw();
    try {
      await work();
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem;
      trouble = `${problem.more.line ? `Line ${problem.more.line}: ` : ""}${problem.message}`;
      announce(trouble);
    }
    isBusy = false;
    redraw();
  }

  const preview = () => busily(async () => {
    plans = null;
    results = [];
    requests = (await api.parseSpecs(text)).workloads;
    plans = (await api.query("/plan", { workloads: requests })).plans ?? [];
    announce(`Plan: ${summary(plans)}`);
  });

  const apply = () => busily(async () => {
    for (const request of requests) {
      await api.ask("PUT", `/workloads/${api.part(request.workload_id)}`, request);
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
      h("p", {}, h("label", { for: "spec-file" }, "From a file "), h("input", { id: "spec-file", type: "file", accept: ".yaml,.yml,.json", onchange: load })),
      h("label", { for: "spec" }, "Spec"),
      h("textarea", { id: "spec", rows: "14", spellcheck: "false", autocapitalize: "off", placeholder: EXAMPLE, oninput: (event) => edit(event.target.value) }),
      h("p", { class: "row" },
        h("button", { type: "button", onclick: preview, disabled: isBusy }, "Preview"),
        plans && deed("workloads", `Apply ${counted(plans.length, "workload")}`, apply, { class: "primary", disabled: isBusy || plans.some((plan) => plan.action === "refused") })),
      trouble && h("p", { class: "callout bad", role: "alert" }, trouble),
      plans && planned(plans),
      results.length > 0 && h("section", { class: "card" }, h("h2", {}, "Applied"), h("ul", {}, results.map((id) => h("li", {}, workloadLink(id))))),
    ],
  };
}

function summary(plans) {
  const counts = Map.groupBy(plans, (plan) => plan.action === "none" ? "unchanged" : plan.action);
  return [...counts].map(([action, those]) => `${those.length} ${action}`).join(", ");
}

const planned = (plans) => h("section", { class: "card" }, h("h2", {}, "Plan"), h("p", {}, `${summary(plans)}. Nothing was written.`), plans.map(one));

const TONE = { create: "Running", update: "Pending", delete: "Failed", refused: "Failed" };

function one(plan) {
  const where = plan.node_id && ["on ", nodeLink(plan.node_id), plan.current_node_id && plan.current_node_id !== plan.node_id && ` (now on ${plan.current_node_id})`];
  return h("div", { class: "plan" },
    h("h3", {}, plan.workload_id, " ", status(TONE[plan.action] ?? "Stopped", plan.action === "none" ? "unchanged" : plan.action)),
    h("p", {}, where, plan.would_wait && h("strong", {}, " would wait "), " ", plan.reason ?? ""),
    plan.changes?.length > 0 && table("Changes", ["Field", "Before", "After"],
      plan.changes.map((change) => [change.field, h("code", {}, change.before ?? ""), h("code", {}, change.after ?? "")]), ""),
    plan.displaces?.length > 0 && h("ul", {}, plan.displaces.map((line) => h("li", {}, line))));
}
