// The plan of a change: what would be created, updated or deleted, and where.

import type { WorkloadPlan } from "../api/schema";
import { Card } from "./card";
import { NodeLink } from "./links";
import { Status } from "./status";
import { Table } from "./table";

const TONE: Record<string, string> = { create: "Running", update: "Pending", delete: "Failed", refused: "Failed" };
const wordOf = (plan: WorkloadPlan): string => (plan.action === "none" ? "unchanged" : plan.action ?? "");

export function summaryOf(plans: WorkloadPlan[]): string {
  const counts = new Map<string, number>();
  for (const plan of plans) counts.set(wordOf(plan), (counts.get(wordOf(plan)) ?? 0) + 1);
  return [...counts].map(([action, count]) => `${count} ${action}`).join(", ");
}

export const isRefused = (plans: WorkloadPlan[]): boolean => plans.some((plan) => plan.action === "refused");

export const Plans = ({ plans }: { plans: WorkloadPlan[] }) => (
  <Card title="Plan">
    <p>{summaryOf(plans)}. Nothing was written.</p>
    {plans.map((plan) => <Plan plan={plan} key={plan.workload_id} />)}
  </Card>
);

function Plan({ plan }: { plan: WorkloadPlan }) {
  const { changes = [], displaces = [], node_id: node, current_node_id: current } = plan;
  return (
    <div class="plan">
      <h3>{plan.workload_id} <Status word={TONE[plan.action ?? ""] ?? "Stopped"} shown={wordOf(plan)} /></h3>
      <p>
        {node && <>on <NodeLink id={node} />{current && current !== node && ` (now on ${current})`}</>}
        {plan.would_wait && <strong> would be pending </strong>} {plan.reason ?? ""}
      </p>
      {changes.length > 0 && (
        <Table caption="Changes" heads={["Field", "Before", "After"]} empty=""
          rows={changes.map((change) => [change.field, <code>{change.before ?? ""}</code>, <code>{change.after ?? ""}</code>])} />
      )}
      {displaces.length > 0 && <ul>{displaces.map((line) => <li key={line}>{line}</li>)}</ul>}
    </div>
  );
}
