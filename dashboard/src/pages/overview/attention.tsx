// Current problems, each with the button or the command that fixes it, and what changed in the last hour.

import { call } from "../../api/client";
import { Problem } from "../../api/problem";
import type { EventView, WorkloadView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { Card, Quiet } from "../../components/card";
import { perform } from "../../components/dialog";
import { Status } from "../../components/status";
import { Timeline } from "../../components/timeline";
import { counted, serverNow } from "../../format";
import { useReading } from "../../state/reading";
import { emptyText, type State } from "../../state/store";
import { problemsOf, type ProblemLine } from "./problems";

const SHOWN = 12, PER_STATUS = 50, UNHEALTHY_MAX = 10, READ_EVERY_MS = 10_000, HOUR_MS = 3_600_000;

export function Problems({ state }: { state: State }) {
  const { value } = useReading(() => readAttention(state.events), state.events.at(-1)?.sequence, READ_EVERY_MS);
  if (!value || !state.nodesRead) return <Card title="Problems" width="wide"><Quiet>{emptyText(false)}</Quiet></Card>;
  const lines = problemsOf(state, value);
  return (
    <Card title={lines.length ? `Problems (${lines.length})` : "Problems"} width="wide">
      {lines.length === 0 && <p><Status word="Ready" shown="No problems" /></p>}
      {lines.length > 0 && <ul class="problems">{lines.slice(0, SHOWN).map((line) => <Line line={line} key={line.key} />)}</ul>}
      {lines.length > SHOWN && <Quiet>and {lines.length - SHOWN} more</Quiet>}
    </Card>
  );
}

/** Failed and pending workloads, and those that were unhealthy according to the latest events. The list of all would be
 * too long. */
async function readAttention(events: EventView[]): Promise<WorkloadView[]> {
  const lists = await Promise.all(["Failed", "Pending"].map((status) => call("ListWorkloads", { status, limit: PER_STATUS })));
  const unhealthy = new Set(events.filter((event) => event.kind === "WorkloadUnhealthy").map((event) => event.workload_id ?? ""));
  const read = await Promise.all([...unhealthy].slice(-UNHEALTHY_MAX).map(readExisting));
  return [...lists.flatMap((list) => list.workloads ?? []), ...read.flat().filter((view) => view.status === "Running")];
}

async function readExisting(id: string): Promise<WorkloadView[]> {
  try {
    const { workload } = await call("GetWorkload", { workload_id: id });
    return workload ? [workload] : [];
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return [];
    throw error;
  }
}

function Line({ line }: { line: ProblemLine }) {
  return (
    <li class={line.tone}>
      <a href={line.url}>{line.subject}</a> <span>{line.text}</span> <Fix line={line} />
    </li>
  );
}

function Fix({ line: { command, subject } }: { line: ProblemLine }) {
  if (command === `persysctl workload retry ${subject}`) {
    return <ActionButton permission="workloads" onClick={() => perform(() => call("RetryWorkload", { workload_id: subject }), `${subject} is being retried.`)}>{`Retry ${subject}`}</ActionButton>;
  }
  if (command === `persysctl node uncordon ${subject}`) {
    return <ActionButton permission="nodes" onClick={() => perform(() => call("UncordonNode", { node_id: subject }), `${subject} is schedulable again.`)}>{`Uncordon ${subject}`}</ActionButton>;
  }
  return <code>{command}</code>;
}

/** Events of the last hour: how many, and the newest. */
export function Changes({ events, isRead, limit }: { events: EventView[]; isRead: boolean; limit: number }) {
  const recent = events.filter((event) => serverNow() - Date.parse(event.at ?? "") < HOUR_MS);
  return (
    <Card title="Changes of the last hour" width="wide">
      {isRead && recent.length > limit && <Quiet>{counted(recent.length, "event")}; the newest {limit}:</Quiet>}
      <Timeline events={recent} limit={limit} empty={emptyText(isRead, events.length ? "No changes in the last hour." : "No events yet.")} />
      <p><a href="#/events">All events</a></p>
    </Card>
  );
}
