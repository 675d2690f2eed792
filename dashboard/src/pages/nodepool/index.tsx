// One node pool: its machines, what it would do next, and pause.

import { call } from "../../api/client";
import type { NodePoolView } from "../../api/schema";
import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { Card, Facts, Quiet, Tags } from "../../components/card";
import { WorkloadLink } from "../../components/links";
import { RowActions, type RowAction } from "../../components/list_page";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { duration } from "../../format";
import { useReading } from "../../state/reading";
import { emptyText } from "../../state/store";
import { poolStatus } from "../lists/cluster";

const READ_EVERY_MS = 5000;

const pause = (paused: boolean) => ({ spec }: NodePoolView) => call("PauseNodePool", { pool_id: spec?.pool_id ?? "", paused });

const ACTIONS: RowAction<NodePoolView>[] = [
  { verb: "Pause", permission: "nodes", isOffered: ({ paused, deleting }) => !paused && !deleting, work: pause(true), done: ({ spec }) => `${spec?.pool_id} is paused.` },
  { verb: "Resume", permission: "nodes", isOffered: ({ paused, deleting }) => Boolean(paused) && !deleting, work: pause(false), done: ({ spec }) => `${spec?.pool_id} is resumed.` },
  {
    verb: "Delete", permission: "nodes", isOffered: ({ deleting }) => !deleting,
    question: ({ spec }) => ({ title: `Delete the node pool ${spec?.pool_id}?`, verb: "Delete", danger: true, text: "Its machines are drained and destroyed. This cannot be undone." }),
    work: ({ spec }) => call("DeleteNodePool", { pool_id: spec?.pool_id ?? "" }),
    done: ({ spec }) => `${spec?.pool_id} is being deleted.`,
  },
];

function View({ route: { id } }: { route: Route }) {
  const { value, problem, reload } = useReading(() => call("GetNodePool", { pool_id: id }), "", READ_EVERY_MS);
  const view = problem?.status === 404 ? undefined : value?.pool;
  if (!view) {
    const text = problem?.status === 404 ? "The node pool does not exist; it may have been deleted." : problem?.message ?? emptyText(false);
    return <><h1 tabIndex={-1}>{id}</h1><Quiet>{text}</Quiet></>;
  }
  return (
    <>
      <h1 tabIndex={-1}>{id}</h1>
      <p class="row"><Status word={poolStatus(view)} /><RowActions actions={ACTIONS} item={view} name={id} onDone={reload} /></p>
      {view.problem && <p class="callout bad">{view.problem}{view.retry_at && <> Next try <When at={view.retry_at} />.</>}</p>}
      <div class="grid"><Details view={view} /><Plan id={id} version={String(view.paused)} /><Machines view={view} /></div>
    </>
  );
}

const Details = ({ view: { spec, spend_per_hour: spend } }: { view: NodePoolView }) => (
  <Card title="Details">
    <Facts pairs={[
      ["Provider", spec?.provider],
      ["Region", spec?.region],
      ["Image", spec?.image],
      ["Machines", `${spec?.min ?? 0} to ${spec?.max ?? 0}`],
      ["Sizes", <Tags items={(spec?.sizes ?? []).map((size) => `${size.name}: ${size.hour_price ?? 0} per hour`)} />],
      ["Spend", `${spend ?? 0} of ${spec?.spend_per_hour_max ?? 0} per hour`],
      ["Idle after", spec?.idle_after_seconds && duration(Number(spec.idle_after_seconds))],
      ["Credentials", spec?.credentials && `secret ${spec.credentials}`],
    ]} />
  </Card>
);

/** What the pool would do now. It asks the provider, so it is read once and on request. */
function Plan({ id, version }: { id: string; version: string }) {
  const { value, problem, reload } = useReading(() => call("PlanNodePool", { pool_id: id }), version);
  return (
    <Card title="Plan" width="two">
      {problem && <p class="callout bad">{problem.message}</p>}
      {!value && !problem && <Quiet>Loading …</Quiet>}
      {value?.problem && <p class="callout">{value.problem}</p>}
      {value && (
        <Table caption="Plan" heads={["Action", "Machine", "Size", "Price per hour", "Workload", "Reason"]} empty="Nothing to do."
          rows={(value.steps ?? []).map((step) => [
            step.action, step.machine || "–", step.size || "–", String(step.hour_price ?? 0),
            step.workload_id ? <WorkloadLink id={step.workload_id} /> : "–", step.reason ?? "",
          ])} />
      )}
      <p><button type="button" onClick={reload}>Plan again</button></p>
    </Card>
  );
}

const Machines = ({ view: { machines = [] } }: { view: NodePoolView }) => (
  <Card title={`Machines (${machines.length})`} width="wide">
    <Table caption="Machines" heads={["Machine", "State", "Size", "Price per hour", "Since", "Provider id", "Reason"]} empty="No machines."
      rows={machines.map((one) => [one.name, one.state ?? "", one.size ?? "", String(one.hour_price ?? 0), <When at={one.state_since} />, one.provider_id || "–", one.reason ?? ""])} />
  </Card>
);

export const nodepool: Page = { title: ({ id }) => id, needs: () => ({}), View };
