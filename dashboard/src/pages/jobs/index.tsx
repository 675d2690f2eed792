// All jobs, with their next and last runs.

import { pages } from "../../api/client";
import type { JobView } from "../../api/schema";
import type { Page } from "../../app/page";
import { Quiet } from "../../components/card";
import { jobUrl } from "../../components/links";
import { Status } from "../../components/status";
import { Table } from "../../components/table";
import { When } from "../../components/when";
import { useReading } from "../../state/reading";
import { emptyText, useAppState } from "../../state/store";

const READ_EVERY_MS = 5000;

function View() {
  const { events } = useAppState();
  const { value, problem } = useReading(() => pages<JobView>("ListJobs", "jobs"), events.at(-1)?.sequence, READ_EVERY_MS);
  return (
    <>
      <h1 tabIndex={-1}>Jobs</h1>
      <p class="quiet">A job runs a workload to its end, once or on a schedule. Apply a spec with <code>job</code> or <code>schedule</code> with persysctl to create one.</p>
      {value === null
        ? <Quiet>{problem && problem.status !== 401 ? problem.message : emptyText(false)}</Quiet>
        : <Table caption="Jobs" heads={["Job", "Last run", "Ended", "Schedule", "Next run", "Type"]} empty="No jobs." rows={value.map(row)} />}
    </>
  );
}

const row = (view: JobView) => {
  const id = view.spec?.job_id ?? "", last = lastRun(view);
  return [
    <a href={jobUrl(id)}>{id}</a>, last ? <Status word={last.state} /> : "–", <When at={last?.ended_at} />,
    view.suspended ? "suspended" : view.spec?.schedule?.cron ?? "–", <When at={view.next_run_at} />, view.type ?? "",
  ];
};

/** The run that began last. */
export const lastRun = ({ runs = [] }: JobView) => runs.toSorted((a, b) => (a.started_at ?? "").localeCompare(b.started_at ?? "")).at(-1);

export const jobs: Page = { title: () => "Jobs", needs: () => ({}), View };
