// One workload: status and reason, placement, usage, events, log, and its actions.

import { useEffect, useRef } from "preact/hooks";
import { call, events as readEvents } from "../../api/client";
import type { EventView } from "../../api/schema";
import { announce } from "../../app/announce";
import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { Card, Quiet } from "../../components/card";
import { Explanation } from "../../components/explanation";
import { Log } from "../../components/log";
import { WorkloadStatus } from "../../components/status";
import { Timeline } from "../../components/timeline";
import { UsageHistory } from "../../components/usage_history";
import { useReading } from "../../state/reading";
import { emptyText, useAppState } from "../../state/store";
import { WorkloadActions } from "./actions";
import { Data, Details, History, Reason, Runtime, Services } from "./details";
import { SpecEditor } from "./spec_editor";
import { Usage } from "./usage";

const EVENTS_SHOWN = 200;

function View({ route: { id } }: { route: Route }) {
  const state = useAppState();
  const view = state.workloads.get(id);
  const version = `${state.events.findLast((event) => event.workload_id === id)?.sequence}${view?.status}`;
  const recent = useReading(() => readEvents({ workload_id: id, limit: EVENTS_SHOWN }), version);
  const placement = useReading(() => call("ExplainWorkload", { workload_id: id }), version);
  useAnnouncedStatus(id, view?.status);
  const events = recent.value?.events ?? null;
  if (!view) return <Absent id={id} isKnown={state.absent.has(id)} events={events} />;
  return (
    <>
      <h1 tabIndex={-1}>{id}</h1>
      <p class="row"><WorkloadStatus view={view} /><WorkloadActions view={view} /></p>
      <Reason view={view} />
      <div class="grid">
        <Details view={view} />
        <Runtime view={view} node={state.nodes.get(view.assigned_node_id ?? "")} />
        <Services view={view} />
        <Data view={view} />
        <Card title="Placement" width="two">{placement.value ? <Explanation response={placement.value} /> : <Quiet>Loading …</Quiet>}</Card>
        <Usage view={view} />
        <UsageHistory workload={id} />
        <Card title="Events" width="wide">{events ? <Timeline events={events} about={id} /> : <Quiet>Loading …</Quiet>}</Card>
        <History view={view} />
        <SpecEditor view={view} />
        <Card title="Log" width="wide"><Log id={id} /></Card>
      </div>
    </>
  );
}

const Absent = ({ id, isKnown, events }: { id: string; isKnown: boolean; events: EventView[] | null }) => (
  <>
    <h1 tabIndex={-1}>{id}</h1>
    <Quiet>{emptyText(isKnown, "The workload does not exist; it may have been deleted.")}</Quiet>
    {events && events.length > 0 && <Card title="Events"><Timeline events={events} /></Card>}
  </>
);

function useAnnouncedStatus(id: string, status: string | undefined): void {
  const last = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (last.current && status && last.current !== status) announce(`${id} is ${status}`);
    last.current = status;
  }, [id, status]);
}

export const workload: Page = { title: ({ id }) => id, needs: ({ id }) => ({ workload: id, nodes: true }), View };
