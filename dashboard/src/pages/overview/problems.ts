// What needs attention now, and the command that shows or fixes it.

import type { NodeView, WorkloadView } from "../../api/schema";
import { segment } from "../../api/client";
import { isUnhealthy } from "../../components/status";
import type { State } from "../../state/store";

export interface ProblemLine {
  key: string;
  tone: "bad" | "wait";
  subject: string;
  url: string;
  text: string;
  command: string;
}

/** The most severe first. `attention` has the workloads that are failed, pending or unhealthy. */
export function problemsOf({ nodes, mode }: Pick<State, "nodes" | "mode">, attention: WorkloadView[]): ProblemLine[] {
  const found: ProblemLine[] = [];
  if (mode?.mode && mode.mode !== "normal") {
    found.push({ key: "mode", tone: "bad", subject: "Control plane", url: "#/", text: `${mode.mode}: ${mode.reason ?? ""}`, command: mode.next_steps?.[0] ?? "persysctl doctor" });
  }
  for (const node of nodes.values()) found.push(...ofNode(node));
  for (const view of attention) found.push(...ofWorkload(view));
  return found.sort((a, b) => Number(b.tone === "bad") - Number(a.tone === "bad"));
}

function* ofNode(node: NodeView): Generator<ProblemLine> {
  const id = node.node_id ?? "", url = `#/nodes/${segment(id)}`;
  if (node.status !== "Ready" && !node.drain) {
    const command = node.confirmed_dead ? `persysctl node remove ${id}` : `persysctl node get ${id}`;
    yield { key: `node ${id}`, tone: "bad", subject: id, url, text: `${node.status}: ${node.status_reason || "no heartbeat"}`, command };
  } else if (node.cordoned && !node.drain) {
    yield { key: `cordon ${id}`, tone: "wait", subject: id, url, text: "cordoned: it gets no new workloads", command: `persysctl node uncordon ${id}` };
  } else if (node.drain?.state === "drained") {
    yield { key: `drain ${id}`, tone: "wait", subject: id, url, text: "drained: it runs no workloads", command: `persysctl node uncordon ${id}` };
  }
  for (const problem of node.problems ?? []) {
    yield { key: `${id} ${problem}`, tone: "wait", subject: id, url, text: problem, command: `persysctl node get ${id}` };
  }
}

function* ofWorkload(view: WorkloadView): Generator<ProblemLine> {
  const id = view.workload_id ?? "", url = `#/workloads/${segment(id)}`;
  const line = { key: `workload ${id}`, subject: id, url };
  const text = view.reason?.message || view.failure_reason || view.reason?.code || "";
  if (view.status === "Failed") yield { ...line, tone: "bad", text: text || "failed", command: `persysctl workload retry ${id}` };
  else if (view.status === "Pending" && view.reason?.code) yield { ...line, tone: "wait", text: text || "pending", command: `persysctl explain ${id}` };
  else if (view.status === "Running" && isUnhealthy(view)) yield { ...line, tone: "bad", text: text || "unhealthy", command: `persysctl logs ${id}` };
}
