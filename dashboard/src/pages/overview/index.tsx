// Overview of the cluster.

import type { GetCapacityResponse, GetClusterSummaryResponse, ModeView } from "../../api/schema";
import type { Page } from "../../app/page";
import { CapacityBars } from "../../components/capacity";
import { Card, Quiet } from "../../components/card";
import { NodeLink } from "../../components/links";
import { Status } from "../../components/status";
import { When } from "../../components/when";
import { counted } from "../../format";
import { emptyText, useAppState, type State } from "../../state/store";
import { Changes, Problems } from "./attention";
import { NodeTiles } from "./tiles";

const EVENTS_SHOWN = 12, NODES_SHOWN = 5;

function View() {
  const state = useAppState();
  const { summary, mode, nodes, nodesRead } = state;
  return (
    <>
      <h1 tabIndex={-1}>Overview</h1>
      <div class="grid">
        <Card title="Workloads">{summary ? <Workloads summary={summary} /> : <Placeholder />}</Card>
        <Card title="Nodes">{summary ? <Nodes state={state} summary={summary} /> : <Placeholder />}</Card>
        <Card title="Control plane">{mode ? <Mode view={mode} /> : <Placeholder />}</Card>
        <Card title="Capacity" width="wide">
          {nodes.size
            ? <><CapacityBars nodes={nodes.values()} /><NodeTiles nodes={[...nodes.values()]} /></>
            : <Quiet>{emptyText(nodesRead, "No node has joined yet.")}</Quiet>}
        </Card>
        <Problems state={state} />
        <Changes events={state.events} isRead={state.eventsRead} limit={EVENTS_SHOWN} />
      </div>
    </>
  );
}

const Placeholder = () => <Quiet>{emptyText(false)}</Quiet>;

function Workloads({ summary }: { summary: GetClusterSummaryResponse }) {
  const counts: [string, number][] = [
    ["Running", summary.running_workloads ?? 0], ["Pending", summary.pending_workloads ?? 0],
    ["Failed", summary.failed_workloads ?? 0], ["Deleting", summary.deleted_workloads ?? 0],
  ];
  const total = summary.total_workloads ?? 0;
  const others = total - counts.reduce((sum, [, count]) => sum + count, 0);
  return (
    <>
      <p class="figure">{total}<span class="quiet">{total === 1 ? " workload" : " workloads"}</span></p>
      <ul class="counts">
        {counts.map(([word, count]) => (
          <li key={word}><a href={`#/workloads?status=${word}`}><Status word={word} /></a><span class="number">{count}</span></li>
        ))}
        {others > 0 && <li><span>Others</span><span class="number">{others}</span></li>}
      </ul>
    </>
  );
}

function Nodes({ state: { nodes, capacity }, summary }: { state: State; summary: GetClusterSummaryResponse }) {
  const notReady = [...nodes.values()].filter((node) => node.status !== "Ready");
  return (
    <>
      <p class="figure">{summary.ready_nodes ?? 0} of {summary.total_nodes ?? 0}<span class="quiet"> ready</span></p>
      {notReady.length > 0 && (
        <ul class="counts">
          {notReady.slice(0, NODES_SHOWN).map((node) => <li key={node.node_id}><NodeLink id={node.node_id} /><Status word={node.status} /></li>)}
        </ul>
      )}
      {capacity && Boolean(summary.total_nodes) && <Redundancy capacity={capacity} />}
    </>
  );
}

/** N+1: whether the cluster tolerates the loss of any one node. */
function Redundancy({ capacity }: { capacity: GetCapacityResponse }) {
  if (capacity.survives_any_loss) return <p><Status word="Ready" shown="Tolerates the loss of any one node" /></p>;
  const stranded = (loss: { stranded?: string[] }) => loss.stranded?.length ?? 0;
  const worst = (capacity.losses ?? []).filter((loss) => stranded(loss) > 0).sort((a, b) => stranded(b) - stranded(a))[0];
  if (!worst) return <p><Status word="degraded" shown="Does not tolerate the loss of every node" /></p>;
  return (
    <p>
      <Status word="degraded" shown="No spare node" />: without <NodeLink id={worst.node_id} />, {counted(stranded(worst), "workload")} would be unplaceable
    </p>
  );
}

function Mode({ view }: { view: ModeView }) {
  const steps = view.next_steps ?? [];
  return (
    <>
      <p class="figure"><Status word={view.mode} /></p>
      {view.reason && <p>{view.reason}</p>}
      {view.since && <p class="quiet">since <When at={view.since} /></p>}
      {view.leader && <p class="quiet">leader {view.leader}</p>}
      {steps.length > 0 && <ul>{steps.map((step) => <li key={step}>{step}</li>)}</ul>}
    </>
  );
}

export const overview: Page = { title: () => "Overview", needs: () => ({ summary: true, nodes: true, capacity: true }), View };
