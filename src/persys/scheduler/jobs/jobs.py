"""Jobs as users change them. A change is one commit with its records and events.

A job holds the lock of the workload with its id while it or one of its runs is changed, by a user or by the
controller: decisions see each other, and a workload, a set and a job never get the same id at the same time.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from persys.core.intent.ownership import Owners, check_id
from persys.core.jobs import changes
from persys.core.jobs.changes import JobChange, Outcome
from persys.core.jobs.situation import JobEvent
from persys.errors import InvalidError, NotFoundError, QuarantinedError, RefusedError
from persys.infra.clock import Clock
from persys.model.event import Event
from persys.model.ids import WorkloadId
from persys.model.job import Job, JobId, Run, RunState
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys
from persys.wire.stored import records

Done = TypeVar("Done")

# The record of a run has the template and its open attempts, and must not exceed the limit of the store.
TEMPLATE_BYTES_MAX = 256 * 1024


class Jobs:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        reconciler: Reconciler,
        clock: Clock,
        *,
        changed: Callable[[str], None],
        check_leader: Callable[[], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        """`changed` is called after each change. `check_leader` raises FencedError if another one leads."""
        self._cluster = cluster
        self._committer = committer
        self._reconciler = reconciler
        self._clock = clock
        self._changed = changed
        self._check_leader = check_leader
        self._metrics = metrics
        # The job itself is not among those whose ids it must not have.
        self._others = Owners(cluster.sets, frozenset(), cluster.runs)

    def get(self, job_id: str) -> Job:
        job = self._cluster.jobs.get(job_id)
        if job is None:
            raise NotFoundError("job", job_id)
        return job

    def all(self) -> list[Job]:
        return [job for _, job in sorted(self._cluster.jobs.items())]

    def runs(self, job_id: str) -> list[Run]:
        """The newest first."""
        return sorted(
            self._cluster.runs.of(job_id),
            key=lambda run: (run.started_at, run.run_id),
            reverse=True,
        )

    async def apply(self, wanted: Job) -> JobChange:
        """Create or update a job. What the scheduler has recorded about it stays. Raises RefusedError."""
        size = len(records.encode(wanted.template))
        if size > TEMPLATE_BYTES_MAX:
            raise InvalidError(
                "template", f"{size} bytes: expected at most {TEMPLATE_BYTES_MAX} for a job"
            )

        async def attempt() -> JobChange:
            old = self._cluster.jobs.get(wanted.job_id)
            if old is None:
                self._check_new(wanted.job_id)
            return await self._stored(changes.apply(old, wanted, now=self._clock.now()))

        return await self._exclusively(wanted.job_id, attempt)

    async def suspend(self, job_id: JobId, *, suspended: bool) -> JobChange:
        async def attempt() -> JobChange:
            now = self._clock.now()
            return await self._stored(
                changes.suspend(self.get(job_id), suspended=suspended, now=now)
            )

        return await self._exclusively(job_id, attempt)

    async def delete(self, job_id: JobId) -> JobChange:
        """Cancel and delete its runs with their members, then drop the record."""

        async def attempt() -> JobChange:
            return await self._stored(changes.delete(self.get(job_id), now=self._clock.now()))

        return await self._exclusively(job_id, attempt)

    async def run_now(self, job_id: JobId) -> tuple[Run, list[Run]]:
        """The new run, and the others that are in progress."""

        async def attempt() -> tuple[Run, list[Run]]:
            now, runs = self._clock.now(), self._cluster.runs.of(job_id)
            others = [run for run in runs if run.state is RunState.RUNNING]
            run, event = changes.run_now(self.get(job_id), list(runs), now=now)
            await self.commit(job_id, runs=[run], events=[event], now=now)
            return run, others

        return await self._exclusively(job_id, attempt)

    async def cancel(self, job_id: JobId, run_id: str) -> Job:
        async def attempt() -> Job:
            job, now = self.get(job_id), self._clock.now()
            run = self._cluster.runs.get(f"{job_id}/{run_id}")
            if run is None:
                raise NotFoundError("run", run_id)
            ended, event = changes.cancel(run, now=now)
            await self.commit(job_id, runs=[ended], events=[event], now=now)
            return job

        return await self._exclusively(job_id, attempt)

    async def commit(
        self,
        job_id: JobId,
        *,
        job: Job | None = None,
        runs: Sequence[Run] = (),
        dropped: Iterable[str] = (),
        drops_job: bool = False,
        events: Iterable[JobEvent] = (),
        now: datetime,
        rule: str = "",
    ) -> None:
        """Store these records and events together. Only within `reconciler.run_exclusive` of the job.

        `dropped` are runs that are deleted, as `<job>/<run>`.
        """
        cluster, gone = self._cluster, list(dropped)

        def done() -> None:
            if job is not None:
                cluster.put_job(job)
            if drops_job:
                cluster.drop_job(job_id)
            for run in runs:
                cluster.runs.put(run)
            for name in gone:
                cluster.runs.drop(name)

        change = Transaction(done=done)
        if job is not None:
            change.puts[keys.job_key(job_id)] = job
        change.puts.update({keys.run_key(run.job_id, run.run_id): run for run in runs})
        change.drops.extend(f"{keys.RUNS}{name}" for name in gone)
        if drops_job:
            change.drops.append(keys.job_key(job_id))
        change.events.extend(job_event(job_id, event, now=now, rule=rule) for event in events)
        ended = [run.state for run in runs if self._has_just_ended(run)]
        await self._committer.commit(change)
        for state in ended:
            self._metrics.run_ended(state)

    def _has_just_ended(self, run: Run) -> bool:
        known = self._cluster.runs.get(f"{run.job_id}/{run.run_id}")
        was_running = known is None or known.state is RunState.RUNNING
        return was_running and run.state is not RunState.RUNNING

    async def _stored(self, change: JobChange) -> JobChange:
        job = change.job
        if change.outcome is Outcome.UNCHANGED:
            # Nothing is committed, which would be fenced, and another leader may have changed it.
            await self._check_leader()
        else:
            await self.commit(job.job_id, job=job, events=change.events, now=job.updated_at)
        return change

    async def _exclusively(self, job_id: JobId, attempt: Callable[[], Awaitable[Done]]) -> Done:
        done = await self._reconciler.run_exclusive(WorkloadId(job_id), attempt)
        self._changed(job_id)
        return done

    def _check_new(self, job_id: JobId) -> None:
        """Raises RefusedError if another object has this id."""
        if why := self._cluster.blocked_because(WorkloadId(job_id)):
            raise QuarantinedError(
                f"job {job_id} cannot be created: {why}; see `persysctl record list`"
            )
        check_id(job_id, self._others)
        if WorkloadId(job_id) in self._cluster.workloads:
            raise RefusedError(f"{job_id} is a workload: delete it first, or use another job id")


def job_event(job_id: JobId, event: JobEvent, *, now: datetime, rule: str = "") -> Event:
    """Events of a job have its id in the place of a workload, so that they are found with it."""
    return Event(now, event.kind, event.message, workload_id=job_id, rule=rule)
