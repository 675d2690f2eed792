"""A simulated cluster with sets and jobs, next to plain workloads."""

import asyncio

from persys.sim.actors.set_users import SetUsers
from persys.sim.checks.context import Probe
from persys.sim.checks.owners import OwnerInvariants
from persys.sim.scenario.plan import PlannedEvent
from persys.sim.world import NODE_LEASE_SECONDS, World

LOOK_SECONDS = 0.5
SUSPEND_SECONDS = 5.0


class SetWorld(World):
    users_type = SetUsers
    invariants: OwnerInvariants

    def _new_invariants(self, probe: Probe) -> OwnerInvariants:
        return OwnerInvariants(
            probe, self.trace, lease_seconds=NODE_LEASE_SECONDS, failed=self._failed
        )

    def open(self, group: asyncio.TaskGroup) -> None:
        super().open(group)
        self.spawn(self._look())

    def end_faults(self) -> None:
        """Users suspend all jobs: their runs would be changes in the quiet phase."""
        super().end_faults()
        self.spawn(self._suspend_jobs())

    def leftovers(self) -> list[str]:
        return [
            *(f"job {name} is not suspended" for name in self._active_jobs()),
            *self.invariants.unsettled(),
        ]

    async def _look(self) -> None:
        while True:
            self.invariants.look()
            await asyncio.sleep(LOOK_SECONDS)

    def _active_jobs(self) -> list[str]:
        jobs = self.invariants.mirror.jobs.values()
        return sorted(
            job.job_id
            for job in jobs
            if job.schedule is not None and not job.suspended and not job.deleting
        )

    async def _suspend_jobs(self) -> None:
        """Also those that a user continues later, with a request from before the end of the faults."""
        while True:
            for name in self._active_jobs():
                self.users.do(PlannedEvent(0.0, "job-suspend", name))
            await asyncio.sleep(SUSPEND_SECONDS)
