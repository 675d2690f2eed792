// The spec of a workload, and its change after a preview. Exactly the previewed spec is applied.

import { useState } from "preact/hooks";
import { call } from "../../api/client";
import { handled } from "../../api/problem";
import type { WorkloadPlan, WorkloadSpec, WorkloadView } from "../../api/schema";
import { announce } from "../../app/announce";
import { ActionButton } from "../../components/action_button";
import { Card } from "../../components/card";
import { perform } from "../../components/dialog";
import { lazy } from "../../components/lazy";
import { isRefused, Plans, summaryOf } from "../../components/plan";

const Editor = lazy(async () => (await import("../../components/editor")).default);

interface Preview {
  spec: WorkloadSpec;
  plans: WorkloadPlan[];
}

export function SpecEditor({ view }: { view: WorkloadView }) {
  const [original, setOriginal] = useState<string | null>(null); // null: closed
  const open = async () => {
    const { stringify } = await import("yaml");
    setOriginal(stringify(view.spec ?? {}));
  };
  return (
    <Card title="Spec" width="wide">
      <details onToggle={(event) => { if (event.currentTarget.open && original === null) void open(); }}>
        <summary>Show the spec</summary>
        {original !== null && <Opened key={original} id={view.workload_id ?? ""} original={original} onApplied={() => setOriginal(null)} />}
      </details>
    </Card>
  );
}

function Opened({ id, original, onApplied }: { id: string; original: string; onApplied: () => void }) {
  const [text, setText] = useState(original);
  const [preview, setPreview] = useState<Preview | null>(null);
  const [error, setError] = useState("");
  const fail = (message: string) => { setError(message); announce(message); };
  const show = () => handled(async () => {
    setError("");
    setPreview(null);
    const spec = await parsed(text, fail);
    if (!spec) return;
    const plans = (await call("PlanWorkloads", { workloads: [{ workload_id: id, spec }] })).plans ?? [];
    setPreview({ spec, plans });
    announce(`Plan: ${summaryOf(plans)}`);
  }, (problem) => fail(problem.message));
  const apply = async ({ spec }: Preview) => {
    if (await perform(() => call("ApplyWorkload", { workload_id: id, spec }), `${id} is being updated.`)) onApplied();
  };
  return (
    <>
      <Editor label={`Spec of ${id}`} text={original} onChange={(value) => { setText(value); setPreview(null); }} />
      <p class="row">
        <button type="button" disabled={text === original} onClick={show}>Preview the change</button>
        {preview && <ActionButton permission="workloads" class="primary" disabled={isRefused(preview.plans)} onClick={() => apply(preview)}>Apply the change</ActionButton>}
      </p>
      {error && <p class="callout bad" role="alert">{error}</p>}
      {preview && <Plans plans={preview.plans} />}
    </>
  );
}

/** The spec, or null after `fail` was called with the line of the first error. */
async function parsed(text: string, fail: (message: string) => void): Promise<WorkloadSpec | null> {
  const { parseDocument } = await import("yaml");
  const document = parseDocument(text);
  const [problem] = document.errors;
  if (problem) fail(`Line ${problem.linePos?.[0].line ?? 1}: ${problem.message.split("\n")[0]}`);
  return problem ? null : (document.toJS() as WorkloadSpec);
}
