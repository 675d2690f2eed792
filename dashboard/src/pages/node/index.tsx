// One node: status, resources, workloads, events, and its actions.

import { call, events as readEvents } from "../../api/client";
import type { DrainView, NodeView } from "../../api/schema";
import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { CapacityBars } from "../../components/capacity";
import { Card, Facts, Quiet, Tags } from "../../components/card";
import { WorkloadLink } from "../../components/links";
import { Status, WorkloadStatus } from "../../components/status";
import { Table } from "../../components/table";
import { Timeline } from "../../components/timeline";
import { UsageHistory } from "../../components/usage_history";
import { When } from "../../components/when";
import { counted } from "../../format";
import { useReading } from "../../state/reading";
import { emptyText, useAppState } from "../../state/store";
import { shownStatus } from "../nodes";
import { NodeActions } from "./actions";
import { Images, Volumes } from "./data";

const WORKLOADS_SHOWN = 200, EVENTS_SHOWN = 50, READ_EVERY_MS = 10_000;

function View({ route: { id } }: { route: Route }) {
  const state = useAppState();
  const node = state.nodes.get(id);
  const version = state.events.at(-1)?.sequence;
  const recent = useReading(() => readEvents({ node_id: id, limit: EVENTS_SHOWN }), version, READ_EVERY_MS);
  return (
    <>
      <h1 tabIndex={-1}>{id}</h1>
      {!node && <Quiet>{emptyText(state.nodesRead, "The node does not exist.")}</Quiet>}
      {node && <p class="row"><Status word={node.status} shown={shownStatus(node)} /><NodeActions node={node} /></p>}
      {node?.drain && <Drain view={node.drain} />}
      {node && (
        <div class="grid">
          <Card title="Capacity"><CapacityBars nodes={[node]} /></Card>
          <Details node={node} />
          <Workloads node={node} version={version} />
          <UsageHistory node={id} />
          <Volumes id={id} />
          <Images id={id} />
          <Card title="Events" width="wide">
            {recent.value ? <Timeline events={recent.value.events} about={id} /> : <Quiet>{emptyText(false)}</Quiet>}
          </Card>
        </div>
      )}
    </>
  );
}

function Drain({ view }: { view: DrainView }) {
  const blocked = view.blocked ?? [];
  return (
    <Card title="Drain" live>
      <p>
        <Status word={view.state} /> {counted(view.remaining ?? 0, "workload")} remaining
        {view.deadline_at && <>, deadline <When at={view.deadline_at} /></>}, started <When at={view.started_at} />
      </p>
      {blocked.length > 0 && (
        <Table caption="Workloads that block the drain" heads={["Workload", "Result", "Reason"]} empty=""
          rows={blocked.map((block) => [<WorkloadLink id={block.workload_id} />, block.stays ? "stays on the node" : "waits", block.reason ?? ""])} />
      )}
    </Card>
  );
}

function Details({ node }: { node: NodeView }) {
  const labels = Object.entries(node.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  const taints = node.taints ?? [];
  return (
    <Card title="Details" width="two">
      <Facts pairs={[
        ["Reason", node.status_reason],
        ["Problems", node.problems?.length && <ul>{node.problems.map((problem) => <li key={problem}>{problem}</li>)}</ul>],
        ["Heartbeat", <When at={node.last_heartbeat} />],
        ["Types", (node.supported_workload_types ?? []).join(", ")],
        ["Labels", labels.length ? <Tags items={labels} /> : "none"],
        ["Taints", taints.length ? <Tags items={taints} /> : "none"],
        ["Agent", node.agent_version],
        ["Address", node.grpc_endpoint],
        ["Clock skew", node.clock_skew_ms && `${node.clock_skew_ms} ms`],
      ]} />
    </Card>
  );
}

function Workloads({ node, version }: { node: NodeView; version: string | undefined }) {
  const { value } = useReading(() => call("ListWorkloads", { node_id: node.node_id ?? "", limit: WORKLOADS_SHOWN }), version, READ_EVERY_MS);
  return (
    <Card title={`Workloads (${node.workload_count ?? 0})`} width="wide">
      {value === null ? <Quiet>Loading …</Quiet> : (
        <Table caption="Workloads of the node" heads={["Workload", "Status", "Type", "Updated"]} empty="No workloads."
          rows={(value.workloads ?? []).map((view) => [
            <WorkloadLink id={view.workload_id} />, <WorkloadStatus view={view} />, view.type ?? "", <When at={view.last_updated} />,
          ])} />
      )}
    </Card>
  );
}

export const node: Page = { title: ({ id }) => id, needs: () => ({ nodes: true }), View };
