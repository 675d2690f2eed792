// Actions on the selected workloads.

import { call } from "../../api/client";
import { handled } from "../../api/problem";
import { ActionButton } from "../../components/action_button";
import { confirm, notice } from "../../components/dialog";
import { counted } from "../../format";
import { refresh } from "../../state/sync";
import { setDesired } from "../workload/actions";

interface BulkAction {
  verb: string;
  text: string;
  danger?: boolean;
  work: (id: string) => Promise<unknown>;
}

const AT_ONCE = 8;
const ACTIONS: BulkAction[] = [
  { verb: "Start", text: "They are started on a node that has room.", work: (id) => setDesired(id, "Running") },
  { verb: "Stop", text: "They keep their nodes and their data, and can be started again.", work: (id) => setDesired(id, "Stopped") },
  { verb: "Redeploy", text: "They are recreated from the same specs, with the current image tags or commits.", work: (id) => call("RedeployWorkload", { workload_id: id }) },
  {
    verb: "Delete", danger: true, text: "They are stopped and removed, with all volumes that are not retained. This cannot be undone.",
    work: (id) => call("DeleteWorkload", { workload_id: id }),
  },
];

export const BulkActions = ({ ids, onDone }: { ids: string[]; onDone: () => void }) => (
  <p class="row bulk" aria-live="polite">
    <span>{counted(ids.length, "workload")} selected</span>
    {ACTIONS.map((action) => (
      <ActionButton key={action.verb} permission="workloads" class={action.danger ? "danger" : ""} onClick={() => run(action, ids, onDone)}>
        {`${action.verb} selected …`}
      </ActionButton>
    ))}
    <button type="button" onClick={onDone}>Clear the selection</button>
  </p>
);

async function run({ verb, text, danger = false, work }: BulkAction, ids: string[], onDone: () => void): Promise<void> {
  const title = `${verb} ${counted(ids.length, "workload")}?`;
  const list = <ul class="selected">{ids.slice(0, 20).map((id) => <li key={id}>{id}</li>)}{ids.length > 20 && <li>and {ids.length - 20} more</li>}</ul>;
  if (!await confirm({ title, text, verb, danger, fields: list })) return;
  const failures = await performAll(ids, work);
  const done = ids.length - failures.length;
  notice(failures.length ? `${verb}: ${done} done, ${failures.length} failed: ${failures[0]}` : `${verb}: ${counted(done, "workload")}.`, failures.length > 0);
  refresh();
  onDone();
}

/** The texts of the failures. A few requests at a time. */
async function performAll(ids: string[], work: (id: string) => Promise<unknown>): Promise<string[]> {
  const waiting = [...ids];
  const failures: string[] = [];
  await Promise.all(Array.from({ length: AT_ONCE }, async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const current = id;
      await handled(async () => { await work(current); }, (problem) => failures.push(`${current}: ${problem.message}`));
    }
  }));
  return failures;
}
