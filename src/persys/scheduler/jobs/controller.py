"""The loop of the leader over all jobs: start what is due, advance runs, delete old ones.

A job gets a pass when it, a run or a member of it has changed, at its next occurrence, and at the times that
the decisions about its runs ask for. An idle job writes nothing and has only a timer. Every record is stored
before members are changed, so a leader that crashes at any step is continued by the next one:

- A run, `Job.last_scheduled_at` and their events are one transaction: an occurrence starts at most one run.
- An attempt is in the record of its run before its workload is created, and its workload id follows from the
  record: an interrupted creation is repeated with the same id.
- A retry starts after the failed attempt is being deleted. Deletion of a run begins with its members.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeVar

import structlog

from persys.core.intent.apply import Accepted, Unchanged, change_desired, stop_because
from persys.core.intent.ownership import Owners, check_id
from persys.core.jobs.changes import ended_by_deletion, expired
from persys.core.jobs.members import member_id, member_workload, membership
from persys.core.jobs.run import CHANGES_MAX, decide_run
from persys.core.jobs.schedule import Due, due, next_occurrence
from persys.core.jobs.situation import AttemptKey, JobEvent, RunDecision
from persys.errors import NotFoundError, PersysError, RefusedError
from persys.infra.aio.keyed_passes import Again, KeyedPasses
from persys.infra.aio.supervisor import KeyedWork
from persys.infra.clock import Clock
from persys.infra.failpoints import failpoint
from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.model.job import JobId, Run, RunState
from persys.model.workload import Desired, Workload
from persys.scheduler.jobs.attempt_states import AttemptStates
from persys.scheduler.jobs.jobs import Jobs
from persys.scheduler.reconcile.change_batches import Transition, WorkloadChange
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.runs import run_name
from persys.store import keys

log = structlog.get_logger()

Done = TypeVar("Done")

RETRY_SECONDS = 1.0  # after a change of a member that failed
DROPPED_PER_STEP_MAX = 64  # runs, in one transaction


class JobController:
    def __init__(
        self,
        cluster: ClusterState,
        jobs: Jobs,
        reconciler: Reconciler,
        states: AttemptStates,
        clock: Clock,
        *,
        may_act: Callable[[], bool],
        work: KeyedWork[str],
    ) -> None:
        """`may_act`: the mode is normal and this scheduler leads."""
        self._cluster = cluster
        self._jobs = jobs
        self._reconciler = reconciler
        self._states = states
        self._clock = clock
        self._may_act = may_act
        self._owners = Owners(cluster.sets, cluster.jobs, cluster.runs)
        self.passes = KeyedPasses(clock, work, name="job", make_pass=self._pass, may_start=may_act)

    def wake(self, job_id: str) -> None:
        """The job or one of its runs has changed."""
        self.passes.wake(job_id)

    def wake_all(self) -> None:
        for job_id in self._job_ids():
            self.wake(job_id)

    def member_changed(self, workload: Workload) -> None:
        """On the path of every decision about a member."""
        owner = workload.membership
        if owner is not None and owner.job_id:
            self.wake(owner.job_id)

    async def run(self) -> None:
        """Without jobs it waits for one, and no timer runs."""
        await self.passes.run(self._job_ids())

    def _job_ids(self) -> set[str]:
        """Also those with runs whose own record does not exist."""
        return {*self._cluster.jobs, *self._cluster.runs.job_ids()}

    async def _pass(self, name: str) -> Again | None:
        """Returns when the job needs its next pass."""
        job_id = JobId(name)
        began = self._clock.monotonic()
        await self._cancel_runs_of_deleted(job_id)
        await self._start_due(job_id)
        cost = self._clock.monotonic() - began
        times: list[datetime] = []
        seconds: list[float] = []
        for run in sorted(self._cluster.runs.of(job_id), key=run_name):
            if run.state is RunState.RUNNING or run.members:
                again = await self._advance(run)
                times += [again.at] if again.at is not None else []
                seconds += [again.after_seconds] if again.after_seconds is not None else []
                cost += again.cost_seconds
        if not await self._delete_expired(job_id):
            seconds.append(RETRY_SECONDS)
        if job_id not in self._cluster.jobs and not self._cluster.runs.of(job_id):
            return None
        job = self._cluster.jobs.get(job_id)
        if job is not None and (at := next_occurrence(job, self._clock.now())) is not None:
            times.append(at)
        return Again(min(times, default=None), min(seconds, default=None), cost)

    async def _cancel_runs_of_deleted(self, job_id: JobId) -> None:
        job = self._cluster.jobs.get(job_id)
        for run, _ in ended_by_deletion(job, self._runs(job_id), self._clock.now()):
            await self._exclusively(job_id, partial(self._end_deleted, job_id, run_name(run)))

    async def _end_deleted(self, job_id: JobId, name: str) -> None:
        now, run = self._clock.now(), self._cluster.runs.get(name)
        found = [run] if run is not None else []
        for ended, event in ended_by_deletion(self._cluster.jobs.get(job_id), found, now):
            await self._jobs.commit(job_id, runs=[ended], events=[event], now=now)

    async def _start_due(self, job_id: JobId) -> None:
        """Start the occurrence that is due, or skip it. Those that it replaces are cancelled before."""
        if self._due(job_id) is not None and self._may_act():
            await self._exclusively(job_id, partial(self._store_due, job_id))
            failpoint("job-run-started")

    def _due(self, job_id: JobId) -> Due | None:
        job = self._cluster.jobs.get(job_id)
        return due(job, self._runs(job_id), self._clock.now()) if job is not None else None

    async def _store_due(self, job_id: JobId) -> None:
        now, found = self._clock.now(), self._due(job_id)
        if found is None:
            return
        for ended, event in found.replaced:
            await self._jobs.commit(job_id, runs=[ended], events=[event], now=now, rule=found.rule)
        await self._jobs.commit(
            job_id,
            job=found.job,
            runs=[found.run] if found.run is not None else [],
            events=found.events,
            now=now,
            rule=found.rule,
        )
        log.info(
            "job.occurrence_settled",
            job_id=job_id,
            occurrence=str(found.job.last_scheduled_at),
            run_id=found.run.run_id if found.run is not None else "",
            rule=found.rule,
        )

    async def _advance(self, run: Run) -> Again:
        """Decide about a run until nothing is left to change now."""
        name, cost = run_name(run), 0.0
        while self._may_act():
            began = self._clock.monotonic()
            known = self._cluster.runs.get(name)
            if known is None:
                return Again(cost_seconds=cost)
            observed = self._states.observed(known)
            decision = decide_run(observed.situation, now := self._clock.now())
            cost += self._clock.monotonic() - began
            if decision.record != known or decision.events:
                stored = await self._exclusively(run.job_id, partial(self._store_run, name))
                if stored is None:
                    continue
                decision = stored
                failpoint("job-run-stored")
            if not await self._change_members(decision):
                return Again(decision.wake_at, RETRY_SECONDS, cost)
            if decision.wake_at is None or decision.wake_at > now:
                return Again(decision.wake_at, observed.look_again_after, cost)
            is_cut = bool(decision.create or decision.stop or decision.delete)
            if not is_cut:
                return Again(None, RETRY_SECONDS, cost)
        return Again(after_seconds=RETRY_SECONDS, cost_seconds=cost)

    async def _store_run(self, name: str) -> RunDecision | None:
        """Decide again with the lock of the job held, and store the record. None: the run is gone."""
        run, now = self._cluster.runs.get(name), self._clock.now()
        if run is None:
            return None
        decision = decide_run(self._states.observed(run).situation, now)
        if decision.record != run or decision.events:
            await self._jobs.commit(
                run.job_id,
                runs=[decision.record],
                events=decision.events,
                now=now,
                rule=decision.rule,
            )
            self._note(decision)
        return decision

    def _note(self, decision: RunDecision) -> None:
        if decision.events:
            run = decision.record
            log.info(
                "job.run_ended",
                job_id=run.job_id,
                run_id=run.run_id,
                state=run.state,
                rule=decision.rule,
                reason=run.reason,
            )

    async def _change_members(self, decision: RunDecision) -> bool:
        """Delete, stop and create attempts. False: at least one change failed."""
        run, now = decision.record, self._clock.now()
        steps: tuple[tuple[Iterable[AttemptKey], Callable[..., Accepted | Unchanged]], ...] = (
            (decision.delete, self._deleted),
            (decision.stop, self._stopped),
            (decision.create, self._created),
        )
        failed: dict[WorkloadId, PersysError] = {}
        for attempts, transition in steps:
            batch = [
                WorkloadChange(member_id(run, key), partial(transition, run, key, now))
                for key in attempts
            ]
            if batch and self._may_act():
                failed |= await self._reconciler.submit_members(batch)
                failpoint("job-members-changed")
        return self._all_changed(run.job_id, failed)

    def _all_changed(self, job_id: JobId, failed: dict[WorkloadId, PersysError]) -> bool:
        lasting = {name: err for name, err in failed.items() if not isinstance(err, NotFoundError)}
        for workload_id, err in list(lasting.items())[:8]:
            log.warning(
                "job.member_not_changed",
                job_id=job_id,
                workload_id=workload_id,
                reason=str(err),
                failed=len(lasting),
            )
        return not lasting

    def _created(
        self, run: Run, key: AttemptKey, now: datetime, old: Workload | None
    ) -> Accepted | Unchanged:
        if old is not None:
            _check_member(old, run, key)
            return Unchanged(old)
        self._check_open(run, key)
        check_id(member_id(run, key), self._owners)
        return Accepted(member_workload(run, key, now), EventKind.WORKLOAD_CREATED)

    def _check_open(self, run: Run, key: AttemptKey) -> None:
        """Raises RefusedError if the attempt was cancelled since the decision."""
        known = self._cluster.runs.get(run_name(run))
        if known is None or known.state is not RunState.RUNNING:
            raise RefusedError(f"run {run.run_id} has ended")
        if not any((one.index, one.attempts) == (key.index, key.attempt) for one in known.members):
            raise RefusedError(f"index {key.index} of run {run.run_id} has ended")

    def _stopped(
        self, run: Run, key: AttemptKey, now: datetime, old: Workload | None
    ) -> Accepted | Unchanged:
        if old is None:
            raise NotFoundError("workload", member_id(run, key))
        _check_member(old, run, key)
        why = f"run {run.run_id} has ended: {run.reason or run.state}"
        if run.state is RunState.RUNNING:
            why = self._states.lost_because(old.id) or "its node was lost"
        return stop_because(old, why, now=now)

    def _deleted(
        self, run: Run, key: AttemptKey, now: datetime, old: Workload | None
    ) -> Accepted | Unchanged:
        if old is not None:
            _check_member(old, run, key)
        return change_desired(old, member_id(run, key), Desired.DELETED, now=now)

    async def _delete_expired(self, job_id: JobId) -> bool:
        """Delete the members of expired runs, then the runs, then a deleted job. False: a change failed."""
        job = self._cluster.jobs.get(job_id)
        if self._cluster.quarantine.reason(keys.job_key(job_id)):
            return True  # how many runs it keeps is not known
        empty: list[str] = []
        for run in expired(job, self._runs(job_id)):
            name = run_name(run)
            if self._cluster.members.of(name):
                if not await self._delete_members(job_id, name):
                    return False
            else:
                empty.append(name)
        for start in range(0, len(empty), DROPPED_PER_STEP_MAX):
            if self._may_act():
                gone = empty[start : start + DROPPED_PER_STEP_MAX]
                await self._exclusively(job_id, partial(self._drop_runs, job_id, gone))
        if job is not None and job.deleting and not self._cluster.runs.of(job_id):
            await self._exclusively(job_id, partial(self._drop_job, job_id))
        return True

    async def _delete_members(self, job_id: JobId, name: str) -> bool:
        now, workloads = self._clock.now(), self._cluster.workloads
        left = [
            workload_id
            for workload_id in sorted(self._cluster.members.of(name))
            if workloads[workload_id].workload.desired is not Desired.DELETED
        ]
        for start in range(0, len(left), CHANGES_MAX):
            if not self._may_act():
                return False
            batch = [
                WorkloadChange(workload_id, _deletion(workload_id, now))
                for workload_id in left[start : start + CHANGES_MAX]
            ]
            failed = await self._reconciler.submit_members(batch)
            if not self._all_changed(job_id, failed):
                return False
        return True

    async def _drop_runs(self, job_id: JobId, names: Sequence[str]) -> None:
        """Those that are still expired and without members: a user may have changed the job."""
        still = {
            run_name(run) for run in expired(self._cluster.jobs.get(job_id), self._runs(job_id))
        }
        gone = [name for name in names if name in still and not self._cluster.members.of(name)]
        await self._jobs.commit(job_id, dropped=gone, now=self._clock.now())

    async def _drop_job(self, job_id: JobId) -> None:
        job, now = self._cluster.jobs.get(job_id), self._clock.now()
        if job is None or not job.deleting or self._cluster.runs.of(job_id):
            return
        event = JobEvent(EventKind.JOB_DELETED, f"job {job_id}")
        await self._jobs.commit(job_id, drops_job=True, events=[event], now=now)
        log.info("job.deleted", job_id=job_id)

    def _runs(self, job_id: JobId) -> list[Run]:
        return list(self._cluster.runs.of(job_id))

    async def _exclusively(self, job_id: JobId, attempt: Callable[[], Awaitable[Done]]) -> Done:
        return await self._reconciler.run_exclusive(WorkloadId(job_id), attempt)


def _deletion(workload_id: WorkloadId, now: datetime) -> Transition:
    return lambda old: change_desired(old, workload_id, Desired.DELETED, now=now)


def _check_member(workload: Workload, run: Run, key: AttemptKey) -> None:
    if workload.membership != membership(run, key):
        raise RefusedError(f"workload {workload.id} exists and is not a member of run {run.run_id}")
