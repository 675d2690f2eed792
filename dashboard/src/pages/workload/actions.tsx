// The buttons of a workload.

import { call } from "../../api/client";
import type { WorkloadView } from "../../api/schema";
import { ActionButton } from "../../components/action_button";
import { perform, performConfirmed } from "../../components/dialog";

export function WorkloadActions({ view }: { view: WorkloadView }) {
  const id = view.workload_id ?? "";
  const isDeleted = view.desired_state === "Deleted";
  return (
    <span class="row">
      <ActionButton permission="workloads" disabled={isDeleted || view.status !== "Failed"}
        onClick={() => perform(() => call("RetryWorkload", { workload_id: id }), `${id} is being retried.`)}>Retry</ActionButton>
      <ActionButton permission="workloads" disabled={isDeleted} onClick={() => redeploy(id)}>Redeploy …</ActionButton>
      {view.desired_state === "Stopped"
        ? <ActionButton permission="workloads" onClick={() => perform(() => setDesired(id, "Running"), `${id} is being started.`)}>Start</ActionButton>
        : <ActionButton permission="workloads" disabled={isDeleted} onClick={() => stop(id)}>Stop …</ActionButton>}
      <ActionButton permission="workloads" class="danger" disabled={isDeleted} onClick={() => remove(id)}>Delete …</ActionButton>
    </span>
  );
}

export const setDesired = (id: string, state: string) => call("ApplyWorkload", { workload_id: id, desired_state: state });

const redeploy = (id: string) => performConfirmed(
  { title: `Redeploy ${id}?`, text: "It is recreated from the same spec, with the current image tag or commit.", verb: "Redeploy" },
  () => call("RedeployWorkload", { workload_id: id }), `${id} is being redeployed.`);

const stop = (id: string) => performConfirmed(
  { title: `Stop ${id}?`, text: "It keeps its node and its data, and can be started again.", verb: "Stop" },
  () => setDesired(id, "Stopped"), `${id} is being stopped.`);

const remove = (id: string) => performConfirmed(
  {
    title: `Delete ${id}?`, verb: "Delete", danger: true,
    text: "It is stopped and removed, with all volumes that are not retained. This cannot be undone.",
  },
  () => call("DeleteWorkload", { workload_id: id }), `${id} is being deleted.`);
