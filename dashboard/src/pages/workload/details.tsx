// What the scheduler and the runtime of the node report about a workload.

import type { WorkloadView } from "../../api/schema";
import { Card, Facts, Tags, type Fact } from "../../components/card";
import { NodeLink } from "../../components/links";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { timeOfDay } from "../../format";

export function Reason({ view: { reason, status } }: { view: WorkloadView }) {
  if (!reason?.message && !reason?.code) return null;
  return (
    <p class={status === "Failed" ? "callout bad" : "callout"}>
      {reason.code && <strong>{reason.code}: </strong>}{reason.message ?? ""}
      {reason.next_retry_at && <> Next retry <When at={reason.next_retry_at} />.</>}
    </p>
  );
}

export function Details({ view }: { view: WorkloadView }) {
  const labels = Object.entries({ ...view.spec?.metadata, ...view.spec?.container?.labels }).map(([name, value]) => `${name}=${value}`);
  return (
    <Card title="Details">
      <Facts pairs={[
        ["Desired state", view.desired_state],
        ["Type", view.type],
        ["Node", <NodeLink id={view.assigned_node_id} />],
        ["Placement", view.placement],
        ["Image", view.spec?.container?.image ?? view.spec?.vm?.os_image],
        ["Revision", view.revision_id],
        ["Updated", <When at={view.last_updated} />],
        ["Attempts", view.retry_attempts && `${view.retry_attempts} of ${view.retry_max_attempts}`],
        ["Labels", labels.length > 0 && <Tags items={labels} />],
      ]} />
    </Card>
  );
}

const tagged = (text: string | undefined) => text && <Tags items={text.split(",")} />;

/** What the runtime of the node reports. */
export function Runtime({ view: { metadata: reported = {} } }: { view: WorkloadView }) {
  const started = reported["container.started_at"], ended = reported["container.finished_at"];
  const pairs: Fact[] = [
    ["Ports", tagged(reported["container.ports"])],
    ["Services", tagged(reported["compose.services"])],
    ["Addresses", tagged(reported["vm.ip_addresses"])],
    ["Restarts", reported["container.restart_count"]],
    ["Exit code", reported["container.exit_code"]],
    ["Health", reported["container.health"]],
    ["State", reported["container.state"] ?? reported["vm.domain_state"]],
    ["Commit", reported["compose.commit"]],
    ["Started", started && <When at={started} />],
    ["Ended", ended && <When at={ended} />],
  ];
  return pairs.some(([, value]) => value) ? <Card title="Runtime"><Facts pairs={pairs} /></Card> : null;
}

export const History = ({ view }: { view: WorkloadView }) => (
  <Card title="Actions on its nodes" width="wide">
    <Table caption="Actions" heads={["Action", "Result", "Node", "Started", "Ended", "Error"]} empty="No actions."
      rows={(view.history ?? []).map((done) => [
        done.action_type ?? "", done.status ?? "", <NodeLink id={done.node_id} />, timeOfDay(done.started_at), timeOfDay(done.ended_at), done.error ?? "",
      ])} />
  </Card>
);

export const Spec = ({ view }: { view: WorkloadView }) => (
  <Card title="Spec" width="wide">
    <details>
      <summary>Show the spec</summary>
      <pre class="log" tabIndex={0} aria-label="Spec">{JSON.stringify(view.spec ?? {}, null, 2)}</pre>
    </details>
  </Card>
);
