// Applies a spec after a preview of its changes. Exactly the previewed requests are applied.

import { useState } from "preact/hooks";
import { call, parseSpecs } from "../../api/client";
import { handled } from "../../api/problem";
import type { ApplyWorkloadRequest, WorkloadPlan } from "../../api/schema";
import { announce } from "../../app/announce";
import type { Page } from "../../app/page";
import { ActionButton } from "../../components/action_button";
import { Card } from "../../components/card";
import { notice } from "../../components/dialog";
import { WorkloadLink } from "../../components/links";
import { isRefused, Plans, summaryOf } from "../../components/plan";
import { counted } from "../../format";
import { refresh } from "../../state/sync";

const EXAMPLE = `id: web
type: container
container:
  image: nginx:alpine
resources:
  cpu_millicores: 100
  memory_mb: 64
`;

interface Preview {
  requests: ApplyWorkloadRequest[];
  plans: WorkloadPlan[];
}

function View() {
  const [text, setText] = useState("");
  const [preview, setPreview] = useState<Preview | null>(null);
  const [results, setResults] = useState<string[]>([]);
  const [errorText, setErrorText] = useState("");
  const [isBusy, setBusy] = useState(false);
  const edit = (value: string) => { setText(value); setPreview(null); };

  const whileBusy = async (work: () => Promise<void>) => {
    setBusy(true);
    setErrorText("");
    await handled(work, (problem) => {
      const shown = `${problem.more.line ? `Line ${problem.more.line}: ` : ""}${problem.message}`;
      setErrorText(shown);
      announce(shown);
    });
    setBusy(false);
  };
  const show = () => whileBusy(async () => {
    setPreview(null);
    setResults([]);
    const { workloads: requests } = await parseSpecs(text);
    const plans = (await call("PlanWorkloads", { workloads: requests })).plans ?? [];
    setPreview({ requests, plans });
    announce(`Plan: ${summaryOf(plans)}`);
  });
  const apply = ({ requests }: Preview) => whileBusy(async () => {
    for (const request of requests) {
      await call("ApplyWorkload", request);
      setResults((done) => [...done, request.workload_id ?? ""]);
    }
    setPreview(null);
    notice(`${counted(requests.length, "workload")} applied.`, false);
    refresh();
  });
  return (
    <>
      <h1 tabIndex={-1}>Apply a spec</h1>
      <p>YAML or JSON, as for persysctl apply; a file may contain several documents.</p>
      <p>
        <label for="spec-file">Load a file </label>
        <input id="spec-file" type="file" accept=".yaml,.yml,.json" onChange={async (event) => edit(await event.currentTarget.files?.[0]?.text() ?? "")} />
      </p>
      <label for="spec">Spec</label>
      <textarea id="spec" rows={14} spellcheck={false} autocapitalize="off" placeholder={EXAMPLE} value={text} onInput={(event) => edit(event.currentTarget.value)} />
      <p class="row">
        <button type="button" onClick={show} disabled={isBusy}>Preview</button>
        {preview && (
          <ActionButton permission="workloads" class="primary" disabled={isBusy || isRefused(preview.plans)} onClick={() => apply(preview)}>
            {`Apply ${counted(preview.plans.length, "workload")}`}
          </ActionButton>
        )}
      </p>
      {errorText && <p class="callout bad" role="alert">{errorText}</p>}
      {preview && <Plans plans={preview.plans} />}
      {results.length > 0 && <Card title="Applied"><ul>{results.map((id) => <li key={id}><WorkloadLink id={id} /></li>)}</ul></Card>}
    </>
  );
}

export const apply: Page = { title: () => "Apply", needs: () => ({}), View };
