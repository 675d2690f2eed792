// What the scheduler and the runtime of the node report about a workload.

import { call } from "../../api/client";
import type { NodeView, WorkloadView } from "../../api/schema";
import { Card, Facts, Tags, type Fact } from "../../components/card";
import { NodeLink, OwnerLink } from "../../components/links";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { bytes, timeOfDay } from "../../format";
import { useReading } from "../../state/reading";

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
        ["Member of", (view.membership?.owner || view.membership?.job_id) && <OwnerLink membership={view.membership} />],
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

/** The published ports as links to the node. Only TCP ports can be opened by a browser. */
function Ports({ text, host }: { text: string; host: string }) {
  return (
    <Tags items={text.split(",").map((port) => {
      const [, hostPort, protocol] = /^(\d+)->\d+\/(\w+)$/.exec(port) ?? [];
      return host && protocol === "tcp" ? <a href={`http://${host}:${hostPort}/`} rel="noreferrer" target="_blank">{port}</a> : port;
    })} />
  );
}

/** The host of HOST:PORT, in brackets if it is an IPv6 address. */
const hostOf = (endpoint: string | undefined): string => (endpoint ?? "").replace(/:\d+$/, "");

/** What the runtime of the node reports. */
export function Runtime({ view, node }: { view: WorkloadView; node: NodeView | undefined }) {
  const reported = view.metadata ?? {};
  const started = reported["container.started_at"], ended = reported["container.finished_at"];
  const pairs: Fact[] = [
    ["Ports", reported["container.ports"] && <Ports text={reported["container.ports"]} host={hostOf(node?.grpc_endpoint)} />],
    ["Running image", reported["container.image"]],
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

/** The services of a stack, with the state of each. */
export function Services({ view }: { view: WorkloadView }) {
  const text = view.metadata?.["compose.services"];
  if (!text) return null;
  const rows = text.split(",").map((service) => {
    const [name = "", state = ""] = service.split("=");
    return [name, <Status word={state} />];
  });
  return <Card title="Services"><Table caption="Services" heads={["Service", "State"]} rows={rows} empty="" /></Card>;
}

/** Volumes of the node that belong to the workload, and the names of the secrets in its spec. */
export function Data({ view }: { view: WorkloadView }) {
  const id = view.workload_id ?? "";
  const { value } = useReading(() => call("ListVolumes", { workload_id: id }), view.revision_id);
  const secrets = secretsOf(view);
  const volumes = value?.volumes ?? [];
  if (!volumes.length && !secrets.length) return null;
  return (
    <Card title="Data" width="two">
      {secrets.length > 0 && <Facts pairs={[["Secrets", <Tags items={secrets} />]]} />}
      {volumes.length > 0 && (
        <Table caption="Volumes" heads={["Volume", "Driver", "Size", "State", "Retain"]} empty=""
          rows={volumes.map((volume) => [volume.name, volume.driver, bytes(volume.size_bytes), volume.state, volume.retain_policy ?? ""])} />
      )}
    </Card>
  );
}

export const secretsOf = (view: WorkloadView): string[] =>
  [...new Set([...JSON.stringify(view.spec ?? {}).matchAll(/secret:\/\/([^"\s\\]+)/g)].map((found) => found[1] ?? ""))];

export const History = ({ view }: { view: WorkloadView }) => (
  <Card title="Actions on its nodes" width="wide">
    <Table caption="Actions" heads={["Action", "Result", "Node", "Started", "Ended", "Error"]} empty="No actions."
      rows={(view.history ?? []).map((done) => [
        done.action_type ?? "", done.status ?? "", <NodeLink id={done.node_id} />, timeOfDay(done.started_at), timeOfDay(done.ended_at), done.error ?? "",
      ])} />
  </Card>
);
