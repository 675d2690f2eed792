"""Jobs of a virtual cluster as a user calls them."""

import asyncio
from typing import Any

from persys.model.job import Run, RunState
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.jobs.virtual_cluster import VirtualCluster


def a_job(
    job_id: str = "backup", *, cron: str = "", image: str = "busybox", **changes: Any
) -> pb.JobSpec:
    """Arguments with the prefix `schedule_` are fields of the schedule."""
    schedule = {
        name.removeprefix("schedule_"): value
        for name, value in changes.items()
        if name.startswith("schedule_")
    }
    own = {name: value for name, value in changes.items() if not name.startswith("schedule_")}
    spec = pb.JobSpec(
        job_id=job_id,
        template=pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(cpu_millicores=100, memory_mb=64),
            container=pb.ContainerSpec(image=image, restart_policy="no"),
        ),
        **own,
    )
    if cron:
        spec.schedule.CopyFrom(pb.JobSchedule(cron=cron, **schedule))
    return spec


class JobCalls:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster

    async def apply(self, spec: pb.JobSpec) -> pb.JobAnswer:
        return await self._change("ApplyJob", pb.ApplyJobRequest(job=spec))

    async def run(self, job_id: str = "backup") -> pb.JobAnswer:
        return await self._change("RunJob", pb.JobRequest(job_id=job_id))

    async def started(self, spec: pb.JobSpec) -> str:
        """Apply a job and start a run of it. Returns the id of the run."""
        applied = await self.apply(spec)
        assert applied.accepted, applied.reason
        answer = await self.run(spec.job_id)
        assert answer.accepted, answer.reason
        run_id: str = answer.run_id
        return run_id

    async def delete(self, job_id: str = "backup") -> pb.JobAnswer:
        return await self._change("DeleteJob", pb.JobRequest(job_id=job_id))

    async def suspend(self, *, suspended: bool, job_id: str = "backup") -> pb.JobAnswer:
        request = pb.SuspendJobRequest(job_id=job_id, suspended=suspended)
        return await self._change("SuspendJob", request)

    async def cancel(self, run_id: str, job_id: str = "backup") -> pb.JobAnswer:
        request = pb.CancelRunRequest(job_id=job_id, run_id=run_id)
        return await self._change("CancelRun", request)

    async def get(self, job_id: str = "backup") -> pb.JobView:
        response = await self._repeated("GetJob", pb.GetJobRequest(job_id=job_id))
        view: pb.JobView = response.job
        return view

    async def _change(self, method: str, request: Any) -> pb.JobAnswer:
        answer: pb.JobAnswer = await self._repeated(method, request)
        return answer

    async def _repeated(self, method: str, request: Any) -> Any:
        """A scheduler that is killed does not answer: ask the next one."""
        answer = await self.cluster.call(method, request)
        while answer is None:
            await asyncio.sleep(0.1)
            await self.cluster.until(lambda: self.cluster.api is not None)
            answer = await self.cluster.call(method, request)
        return answer

    def runs(self, job_id: str = "backup") -> list[Run]:
        """The oldest first."""
        return sorted(self.cluster.app.cluster.runs.of(job_id), key=lambda run: run.run_id)

    async def until_ended(self, run_id: str, *, job_id: str = "backup", within: float = 600) -> Run:
        def ended() -> bool:
            run = self.cluster.app.cluster.runs.get(f"{job_id}/{run_id}")
            return run is not None and run.state is not RunState.RUNNING

        await self.cluster.until(ended, within=within)
        run = self.cluster.app.cluster.runs.get(f"{job_id}/{run_id}")
        assert run is not None
        return run
