// One job: its schedule, next and past runs, and its actions.

import { call } from "../../api/client";
import type { JobView, RunView } from "../../api/schema";
import type { Page } from "../../app/page";
import type { Route } from "../../app/router";
import { ActionButton } from "../../components/action_button";
import { Card, Facts, Quiet } from "../../components/card";
import { perform, performConfirmed } from "../../components/dialog";
import { WorkloadLink } from "../../components/links";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { dateTime } from "../../format";
import { useReading } from "../../state/reading";
import { emptyText, useAppState } from "../../state/store";
import { lastRun } from "../jobs";

const READ_EVERY_MS = 3000;

function View({ route: { id } }: { route: Route }) {
  const { events } = useAppState();
  const { value, problem, reload } = useReading(() => call("GetJob", { job_id: id }), events.at(-1)?.sequence, READ_EVERY_MS);
  const view = value?.job;
  const isGone = problem?.status === 404;
  if (!view || isGone) {
    const text = isGone ? "The job does not exist; it may have been deleted." : problem && problem.status !== 401 ? problem.message : emptyText(false);
    return <><h1 tabIndex={-1}>{id}</h1><Quiet>{text}</Quiet></>;
  }
  return (
    <>
      <h1 tabIndex={-1}>{id}</h1>
      <p class="row"><Status word={view.suspended ? "Paused" : lastRun(view)?.state ?? ""} shown={view.suspended ? "Suspended" : lastRun(view)?.state ?? "No run yet"} /><JobActions view={view} onDone={reload} /></p>
      <div class="grid">
        <Schedule view={view} />
        <Runs view={view} onDone={reload} />
      </div>
    </>
  );
}

function JobActions({ view, onDone }: { view: JobView; onDone: () => void }) {
  const id = view.spec?.job_id ?? "", suspended = !view.suspended;
  const then = (work: Promise<boolean>) => { void work.then(onDone); };
  return (
    <span class="row">
      <ActionButton permission="workloads" onClick={() => then(perform(() => call("RunJob", { job_id: id }), `A run of ${id} was started.`))}>Run now</ActionButton>
      {view.spec?.schedule && (
        <ActionButton permission="workloads" onClick={() => then(perform(() => call("SuspendJob", { job_id: id, suspended }), `${id} is ${suspended ? "suspended" : "resumed"}.`))}>
          {view.suspended ? "Resume" : "Suspend"}
        </ActionButton>
      )}
      <ActionButton permission="workloads" class="danger" onClick={() => then(performConfirmed(
        { title: `Delete ${id}?`, text: "Its runs are cancelled and removed. This cannot be undone.", verb: "Delete", danger: true },
        () => call("DeleteJob", { job_id: id }), `${id} is being deleted.`))}>Delete …</ActionButton>
    </span>
  );
}

const Schedule = ({ view: { spec, next_run_at: next, last_scheduled_at: last } }: { view: JobView }) => (
  <Card title="Schedule">
    <Facts pairs={[
      ["Schedule", spec?.schedule?.cron ?? "none: runs are started by hand"],
      ["Time zone", spec?.schedule?.timezone],
      ["Next run", next && <><When at={next} /> ({dateTime(next)})</>],
      ["Last scheduled", last && <When at={last} />],
      ["Overlap", spec?.schedule?.overlap],
      ["Completions", spec?.completions],
      ["Parallelism", spec?.parallelism],
      ["Retries", spec?.retries],
      ["Deadline", spec?.deadline_seconds && `${spec.deadline_seconds} s`],
    ]} />
  </Card>
);

const Runs = ({ view, onDone }: { view: JobView; onDone: () => void }) => (
  <Card title="Runs" width="wide">
    <Table caption="Runs" heads={["Run", "State", "Started", "Ended", "Succeeded", "Failed", "Active", "Reason", "Workloads", ""]} empty="No runs yet."
      rows={(view.runs ?? []).toSorted((a, b) => (b.started_at ?? "").localeCompare(a.started_at ?? "")).map((run) => [
        run.run_id, <Status word={run.state} />, <When at={run.started_at} />, <When at={run.ended_at} />,
        String(run.succeeded_count ?? 0), String(run.failed_count ?? 0), String(run.active_count ?? 0), run.reason ?? "",
        <Members run={run} />, run.state === "Running" && <Cancel id={view.spec?.job_id ?? ""} run={run} onDone={onDone} />,
      ])} />
  </Card>
);

const Members = ({ run: { members = [] } }: { run: RunView }) => <>{members.map((member, index) => <span key={member.workload_id}>{index > 0 && ", "}<WorkloadLink id={member.workload_id} /></span>)}</>;

const Cancel = ({ id, run, onDone }: { id: string; run: RunView; onDone: () => void }) => (
  <ActionButton permission="workloads" onClick={() => { void perform(() => call("CancelRun", { job_id: id, run_id: run.run_id ?? "" }), `The run is being cancelled.`).then(onDone); }}>{`Cancel ${run.run_id}`}</ActionButton>
);

export const job: Page = { title: ({ id }) => id, needs: () => ({}), View };
