// The buttons of a set: scale, pause, resume, promote, undo, delete.

import { call } from "../../api/client";
import type { SetView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { perform, performConfirmed } from "../../components/dialog";

export function SetActions({ view, onDone }: { view: SetView; onDone: () => void }) {
  const id = view.spec?.set_id ?? "", phase = view.phase ?? "";
  const then = (work: Promise<boolean>) => { void work.then(onDone); };
  const isRolling = phase === "Rolling" || phase === "Canary" || phase === "RollingBack";
  return (
    <span class="row">
      {!view.spec?.every && <ActionButton permission="workloads" onClick={() => then(scale(view))}>Scale …</ActionButton>}
      {phase === "Paused"
        ? <ActionButton permission="workloads" onClick={() => then(perform(() => call("ResumeRollout", { set_id: id }), `The rollout of ${id} is resumed.`))}>Resume</ActionButton>
        : <ActionButton permission="workloads" disabled={!isRolling} onClick={() => then(perform(() => call("PauseRollout", { set_id: id }), `The rollout of ${id} is paused.`))}>Pause</ActionButton>}
      {phase === "Canary" && (
        <ActionButton permission="workloads" class="primary" onClick={() => then(perform(() => call("PromoteRollout", { set_id: id }), `${id} is promoted.`))}>Promote</ActionButton>
      )}
      <ActionButton permission="workloads" disabled={(view.revisions?.length ?? 0) < 2} onClick={() => then(undo(view))}>Undo …</ActionButton>
      <ActionButton permission="workloads" class="danger" onClick={() => then(remove(id))}>Delete …</ActionButton>
    </span>
  );
}

const scale = ({ spec }: SetView) => performConfirmed(
  {
    title: `Scale ${spec?.set_id}`, text: "Members are added, or those with the highest indexes are removed.", verb: "Scale",
    fields: <p><label for="replicas">Members </label><input id="replicas" name="replicas" type="number" min="0" max="10000" required defaultValue={String(spec?.replicas ?? 0)} /></p>,
  },
  ({ replicas }) => call("ScaleSet", { set_id: spec?.set_id ?? "", replicas: Number(replicas) }), `${spec?.set_id} is being scaled.`);

const undo = ({ spec, revisions = [], target_revision: target }: SetView) => performConfirmed(
  {
    title: `Undo the last change of ${spec?.set_id}?`, text: "All members are updated to the template of an earlier revision.", verb: "Undo",
    fields: (
      <p>
        <label for="revision">Revision </label>
        <select id="revision" name="revision">
          {revisions.filter(({ number }) => number !== target).map(({ number }) => number ?? 0).sort((a, b) => b - a).map((number) => <option value={number} key={number}>{number}</option>)}
        </select>
      </p>
    ),
  },
  ({ revision }) => call("UndoRollout", { set_id: spec?.set_id ?? "", revision: Number(revision) }), `${spec?.set_id} is being rolled back.`);

const remove = (id: string) => performConfirmed(
  { title: `Delete ${id}?`, text: "All members are stopped and removed, with all volumes that are not retained. This cannot be undone.", verb: "Delete", danger: true },
  () => call("DeleteSet", { set_id: id }), `${id} is being deleted.`);
