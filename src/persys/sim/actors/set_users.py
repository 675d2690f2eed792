"""Users of sets and jobs: apply, scale, pause, resume, undo, promote and delete; run, cancel and suspend."""

import asyncio
from typing import Any

from persys.model.ids import WorkloadId
from persys.model.workload import Desired
from persys.sim.actors.users import ATTEMPTS_MAX, Users
from persys.sim.checks.acknowledged import UserRequest
from persys.sim.checks.owners import OwnerInvariants
from persys.sim.scenario.plan import PlannedEvent
from persys.sim.scenario.set_specs import job_spec, set_spec, template_of
from persys.sim.scenario.specs import revision_of
from persys.wire.gen.control.v1 import control_pb2

SET_CALLS = {
    "set-pause": "PauseRollout",
    "set-resume": "ResumeRollout",
    "set-promote": "PromoteRollout",
    "set-delete": "DeleteSet",
}
JOB_CALLS = {"job-run": "RunJob", "job-delete": "DeleteJob"}


class SetUsers(Users):
    _invariants: OwnerInvariants

    async def _do(self, event: PlannedEvent) -> None:
        if event.kind == "set-plain":
            await self._apply_plain(event.target)
        elif event.kind.startswith("set-"):
            await self._change_set(event)
        elif event.kind.startswith("job-"):
            await self._change_job(event)
        else:
            await super()._do(event)

    async def _apply_plain(self, name: str) -> None:
        """A workload that a set with the same id replaces later."""
        request = control_pb2.ApplyWorkloadRequest(
            workload_id=name,
            spec=template_of(self._seed, name, 0),
            revision_id=revision_of(0),
        )
        await self._request_with_retries("ApplyWorkload", request, UserRequest(revision_of(0)))

    async def _change_set(self, event: PlannedEvent) -> None:
        name = event.target
        match event.kind:
            case "set-apply":
                spec = set_spec(self._seed, name, int(event.amount), int(event.word))
                self._invariants.requested(
                    WorkloadId(name), UserRequest(desired=Desired.DELETED)
                )  # the set replaces it
                await self._repeat(name, "ApplySet", control_pb2.ApplySetRequest(set=spec))
            case "set-scale":
                scale = control_pb2.ScaleSetRequest(set_id=name, replicas=int(event.amount))
                await self._repeat(name, "ScaleSet", scale)
            case "set-undo":
                await self._repeat(name, "UndoRollout", control_pb2.UndoRolloutRequest(set_id=name))
            case "set-stop" | "set-start":
                desired = Desired.STOPPED if event.kind == "set-stop" else Desired.RUNNING
                request = control_pb2.ApplySetRequest(
                    set=control_pb2.SetSpec(set_id=name), desired_state=desired.title()
                )
                await self._repeat(name, "ApplySet", request)
            case kind:
                await self._repeat(name, SET_CALLS[kind], control_pb2.SetRequest(set_id=name))

    async def _change_job(self, event: PlannedEvent) -> None:
        name = event.target
        match event.kind:
            case "job-apply":
                spec = job_spec(self._seed, name, int(event.amount))
                await self._repeat(name, "ApplyJob", control_pb2.ApplyJobRequest(job=spec))
            case "job-suspend" | "job-continue":
                await self.suspend(name, suspended=event.kind == "job-suspend")
            case "job-cancel":
                await self._cancel(name)
            case kind:
                await self._repeat(name, JOB_CALLS[kind], control_pb2.JobRequest(job_id=name))

    async def suspend(self, name: str, *, suspended: bool) -> None:
        request = control_pb2.SuspendJobRequest(job_id=name, suspended=suspended)
        await self._repeat(name, "SuspendJob", request)

    async def _cancel(self, name: str) -> None:
        """Cancel the newest run that is in progress, if any."""
        answer = await self._call("GetJob", control_pb2.GetJobRequest(job_id=name))
        if answer is None:
            return
        for run in answer.job.runs:
            if run.state == "Running":
                request = control_pb2.CancelRunRequest(job_id=name, run_id=run.run_id)
                await self._repeat(name, "CancelRun", request)
                return

    async def _repeat(self, name: str, method: str, request: Any) -> None:
        """Until it is accepted, or the attempts are used up. A refusal is an error, without a response."""
        self._invariants.owner_requested(name, method, request)
        for _ in range(ATTEMPTS_MAX):
            answer = await self._call(method, request)
            if answer is not None and answer.accepted:
                self._trace.add("user", f"accepted: {method} {name}")
                return
            await asyncio.sleep(1)
