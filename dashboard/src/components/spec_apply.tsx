// Previews and applies a spec, then follows what was applied until it runs or has failed. Exactly the previewed
// requests are applied.

import { useEffect, useState } from "preact/hooks";
import { call, parseSpecs } from "../api/client";
import { handled } from "../api/problem";
import type { ApplyWorkloadRequest, WorkloadPlan } from "../api/schema";
import { announce } from "../app/announce";
import { counted } from "../format";
import { useReading } from "../state/reading";
import { isAllowed, useAppState } from "../state/store";
import { refresh } from "../state/sync";
import { ActionButton } from "./action_button";
import { Card } from "./card";
import { notice } from "./dialog";
import { WorkloadLink } from "./links";
import { isRefused, Plans, summaryOf } from "./plan";
import { healthOf, WorkloadStatus } from "./status";

const PROGRESS_EVERY_MS = 1000;

interface Preview {
  requests: ApplyWorkloadRequest[];
  plans: WorkloadPlan[];
}

interface Props {
  text: string;
  problem?: string; // why the text cannot be previewed yet
}

/** The buttons and results below a spec. Another text discards the preview. */
export function SpecApply({ text, problem = "" }: Props) {
  useAppState(); // permissions
  const [preview, setPreview] = useState<Preview | null>(null);
  const [applied, setApplied] = useState<string[]>([]);
  const [errorText, setErrorText] = useState("");
  const [isBusy, setBusy] = useState(false);
  useEffect(() => setPreview(null), [text]);

  const whileBusy = async (work: () => Promise<void>) => {
    setBusy(true);
    setErrorText("");
    await handled(work, (caught) => {
      const shown = `${caught.more.line ? `Line ${caught.more.line}: ` : ""}${caught.message}`;
      setErrorText(shown);
      announce(shown);
    });
    setBusy(false);
  };
  const show = () => whileBusy(async () => {
    setPreview(null);
    setApplied([]);
    const { workloads: requests } = await parseSpecs(text);
    const plans = (await call("PlanWorkloads", { workloads: requests })).plans ?? [];
    setPreview({ requests, plans });
    announce(`Plan: ${summaryOf(plans)}`);
  });
  const apply = ({ requests }: Preview) => whileBusy(async () => {
    for (const request of requests) {
      await call("ApplyWorkload", request);
      setApplied((done) => [...done, request.workload_id ?? ""]);
    }
    setPreview(null);
    notice(`${counted(requests.length, "workload")} applied.`, false);
    refresh();
  });
  return (
    <>
      <p class="row">
        <button type="button" onClick={show} disabled={isBusy || Boolean(problem)}>Preview</button>
        {preview && isAllowed("workloads") && (
          <ActionButton permission="workloads" class="primary" disabled={isBusy || isRefused(preview.plans)} onClick={() => apply(preview)}>
            {`Apply ${counted(preview.plans.length, "workload")}`}
          </ActionButton>
        )}
        {problem && <span class="quiet">{problem}</span>}
      </p>
      {errorText && <p class="callout bad" role="alert">{errorText}</p>}
      {preview && <Plans plans={preview.plans} />}
      {applied.length > 0 && <Card title="Applied" live><ul>{applied.map((id) => <Progress id={id} key={id} />)}</ul></Card>}
    </>
  );
}

/** The state of one applied workload, until it runs or has failed. */
function Progress({ id }: { id: string }) {
  const [isDone, setDone] = useState(false);
  const { value } = useReading(() => call("GetWorkload", { workload_id: id }), "", isDone ? 0 : PROGRESS_EVERY_MS);
  const view = value?.workload;
  const isFinal = view?.status === "Failed" || (view?.status === "Running" && ["", "healthy"].includes(healthOf(view)));
  useEffect(() => setDone(isFinal), [isFinal]);
  return (
    <li>
      <WorkloadLink id={id} /> {view && <WorkloadStatus view={view} />}
      {view?.reason?.message && <span class="message"> {view.reason.message}</span>}
    </li>
  );
}
