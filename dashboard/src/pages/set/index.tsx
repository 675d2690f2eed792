// One set: its rollout, members and revisions, and its actions.

import { call, segment } from "../../api/client";
import type { SetView } from "../../api/schema";
import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { Card, Facts, Quiet } from "../../components/card";
import { NodeLink, WorkloadLink } from "../../components/links";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { Timeline } from "../../components/timeline";
import { When } from "../../components/when";
import { useReading } from "../../state/reading";
import { emptyText, isAllowed, useAppState } from "../../state/store";
import { SOURCES_MAX } from "../logs";
import { SetActions } from "./actions";

const READ_EVERY_MS = 2000, EVENTS_SHOWN = 30;

function View({ route: { id } }: { route: Route }) {
  const { events } = useAppState();
  const { value, problem, reload } = useReading(() => call("GetSet", { set_id: id }), events.at(-1)?.sequence, READ_EVERY_MS);
  const view = value?.set;
  const isGone = problem?.status === 404;
  const own = events.filter((event) => event.workload_id?.startsWith(`${id}-`) || event.workload_id === id);
  if (!view || isGone) {
    const text = isGone ? "The set does not exist; it may have been deleted." : problem && problem.status !== 401 ? problem.message : emptyText(false);
    return <><h1 tabIndex={-1}>{id}</h1><Quiet>{text}</Quiet></>;
  }
  return (
    <>
      <h1 tabIndex={-1}>{id}</h1>
      <p class="row"><Status word={view.phase} /><SetActions view={view} onDone={reload} /></p>
      {view.reason && <p class={view.phase === "RollingBack" ? "callout bad" : "callout"}>{view.reason}</p>}
      <div class="grid">
        <Rollout view={view} />
        <Revisions view={view} />
        <Members view={view} />
        <Card title="Events" width="wide"><Timeline events={own} limit={EVENTS_SHOWN} empty="No recent events." /></Card>
      </div>
    </>
  );
}

function Rollout({ view }: { view: SetView }) {
  const wanted = view.member_count_wanted ?? 0, updated = view.updated_count ?? 0;
  const { update, scale } = view.spec ?? {};
  return (
    <Card title="Rollout" live>
      <p class="figure">{view.healthy_count ?? 0} of {wanted}<span class="quiet"> healthy</span></p>
      <p><progress aria-label="Updated members" max={Math.max(wanted, 1)} value={updated} /> {updated} of {wanted} run revision {view.target_revision}</p>
      <Facts pairs={[
        ["Started", view.rollout_started_at && <When at={view.rollout_started_at} />],
        ["Stable", view.stable_revision && `revision ${view.stable_revision}`],
        ["At once", update?.max_parallel],
        ["Order", update?.order],
        ["Canary", update?.canary],
        ["On failure", update?.on_failure],
        ["Autoscaling", scale && `${scale.min ?? 0} to ${scale.max ?? 0} members`],
        ["Last scaling", view.scale_reason],
      ]} />
    </Card>
  );
}

const Members = ({ view }: { view: SetView }) => (
  <Card title={`Members (${view.member_count ?? 0})`} width="wide">
    {isAllowed("logs") && (view.members ?? []).length > 0 && <p><a href={`#/logs?ids=${segment((view.members ?? []).slice(0, SOURCES_MAX).map(({ workload_id: id }) => id).join(","))}`}>Logs of the first {SOURCES_MAX} members together</a></p>}
    <Table caption="Members" heads={["Member", "Status", "Health", "Revision", "Node", "Healthy since", "Reason"]} empty="No members."
      rows={(view.members ?? []).map((member) => [
        <WorkloadLink id={member.workload_id} />, <Status word={member.status} />, member.health ? <Status word={member.health} /> : "–",
        String(member.revision ?? ""), <NodeLink id={member.node_id} />, <When at={member.healthy_since} />, member.reason ?? "",
      ])} />
  </Card>
);

const Revisions = ({ view }: { view: SetView }) => (
  <Card title="Revisions" width="two">
    <Table caption="Revisions" heads={["Revision", "Created", "By"]} empty="No revisions."
      rows={(view.revisions ?? []).toSorted((a, b) => (b.number ?? 0) - (a.number ?? 0)).map((one) => [
        `${one.number}${one.number === view.target_revision ? " (current)" : ""}`, <When at={one.created_at} />, one.created_by ?? "",
      ])} />
  </Card>
);

export const set: Page = { title: ({ id }) => id, needs: () => ({}), View };
