"""Checks of jobs: promise 16, and the part of promise 17 about runs.

An occurrence belongs to a job from its creation to its deletion: a job that is created again, for example
after a loss of the store, has occurrences of its own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from persys.model.ids import NodeId
from persys.model.job import Run, RunState
from persys.sim.checks.context import Facts
from persys.sim.fakes.docker import Container
from persys.store import keys


class JobChecks:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._created_at: dict[str, datetime] = {}  # of the job of a run, by the key of the run
        self._runs: dict[str, Run] = {}  # also those that do not exist any more
        self._occurrences: set[tuple[str, datetime]] = set()
        self._starts: Counter[tuple[str, datetime, int]] = Counter()
        self._attempts: Counter[tuple[str, datetime, str]] = Counter()

    def committed(self, before: Mapping[str, Run | None]) -> None:
        """The runs before the commit, by key."""
        for key, old in sorted(before.items()):
            run = self._facts.mirror.runs.get(key)
            if run is None:
                continue
            self._runs[key] = run
            if old is None and not self._facts.losses.open:
                self._check_created(key, run)

    def _check_created(self, key: str, run: Run) -> None:
        job = self._facts.mirror.jobs.get(keys.job_key(run.job_id))
        if job is None:
            self._facts.fail("16 occurrence", f"run {run.run_id} was created without its job")
            return
        self._created_at[key] = job.created_at
        if run.scheduled_at is None:
            return
        if (key, job.created_at) in self._occurrences:
            self._facts.fail("16 occurrence", f"run {run.run_id} was created twice")
        self._occurrences.add((key, job.created_at))
        if job.last_scheduled_at is None or job.last_scheduled_at < run.scheduled_at:
            text = f"run {run.run_id} is stored, and its job does not know it"
            self._facts.fail("16 occurrence", text)

    def container_starts(self, node_id: NodeId, container: Container) -> None:
        membership = self._facts.mirror.memberships.get(container.workload_id)
        if membership is None or not membership.job_id:
            return
        if self._facts.probe.is_cloned(node_id, container):
            return
        key = keys.run_key(membership.job_id, membership.owner)
        run, created_at = self._runs.get(key), self._created_at.get(key)
        if run is None or created_at is None:
            self._facts.fail("16 at most once", f"{container.workload_id} starts without a run")
            return
        self._attempts[key, created_at, container.workload_id] += 1
        if self._attempts[key, created_at, container.workload_id] > 1:
            text = f"{container.workload_id} starts again on {node_id}"
            self._facts.fail("16 at most once", text)
        self._starts[key, created_at, membership.index] += 1
        count = self._starts[key, created_at, membership.index]
        if count > run.retries + 1:
            text = f"index {membership.index} of run {run.run_id} starts {count} times"
            self._facts.fail("16 at most once", f"{text}, with {run.retries} retries")


def unsettled_jobs(facts: Facts) -> Iterator[str]:
    """Promise 17: runs that have not ended, and what deleted jobs and runs left, one line each."""
    mirror = facts.mirror
    for _, job in sorted(mirror.jobs.items()):
        if job.deleting:
            yield f"job {job.job_id} is still being deleted"
        ended = [run for run in mirror.runs.values() if run.job_id == job.job_id]
        if len(ended) > job.keep:
            yield f"job {job.job_id} has {len(ended)} runs, and keeps {job.keep}"
    for _, run in sorted(mirror.runs.items()):
        if run.state is RunState.RUNNING:
            yield f"run {run.run_id} has not ended"
        elif run.members:
            yield f"run {run.run_id} has ended, and its index {run.members[0].index} has not"
    for _, workload in sorted(mirror.workloads.items()):
        member = workload.membership
        if member is None or not member.job_id or facts.losses.ever:
            continue
        if keys.run_key(member.job_id, member.owner) not in mirror.runs:
            yield f"{workload.id} is left of run {member.owner}"
