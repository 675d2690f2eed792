"""What users change: apply, suspend, run, cancel and delete; and which finished runs are deleted.

Each change returns the records to store and the events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from persys.core.jobs.checks import check_job
from persys.core.jobs.members import requested_run_id
from persys.core.jobs.situation import JobEvent
from persys.errors import RefusedError
from persys.model.event import EventKind
from persys.model.job import KEEP_DEFAULT, Job, Run, RunId, RunState

RUNNING_MAX = 50  # runs of a job in progress at the same time


class Outcome(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class JobChange:
    job: Job
    outcome: Outcome
    events: tuple[JobEvent, ...] = ()


def apply(old: Job | None, wanted: Job, *, now: datetime) -> JobChange:
    """Create or change a job. Runs in progress keep their template. Raises InvalidError.

    Occurrences before the change of a schedule are not started.
    """
    check_job(wanted, now=now)
    if old is None:
        created = replace(wanted, created_at=now, updated_at=now)
        return JobChange(created, Outcome.CREATED, (_event(EventKind.JOB_CREATED, created),))
    _refuse_if_deleting(old)
    changed = replace(
        wanted,
        created_at=old.created_at,
        updated_at=old.updated_at,
        suspended=old.suspended,
        last_scheduled_at=old.last_scheduled_at,
    )
    if changed == old:
        return JobChange(old, Outcome.UNCHANGED)
    if _times(old) != _times(changed):
        changed = replace(changed, last_scheduled_at=now)
    changed = replace(changed, updated_at=now)
    return JobChange(changed, Outcome.UPDATED, (_event(EventKind.JOB_UPDATED, changed),))


def suspend(job: Job, *, suspended: bool, now: datetime) -> JobChange:
    """Runs in progress continue. Occurrences while it is suspended are not started later."""
    _refuse_if_deleting(job)
    if job.suspended == suspended:
        return JobChange(job, Outcome.UNCHANGED)
    settled = job.last_scheduled_at if suspended else now
    changed = replace(job, suspended=suspended, last_scheduled_at=settled, updated_at=now)
    kind = EventKind.JOB_SUSPENDED if suspended else EventKind.JOB_RESUMED
    return JobChange(changed, Outcome.UPDATED, (_event(kind, changed),))


def delete(job: Job, *, now: datetime) -> JobChange:
    """Its runs are cancelled and deleted with their members, then the job."""
    if job.deleting:
        return JobChange(job, Outcome.UNCHANGED)
    changed = replace(job, deleting=True, updated_at=now)
    return JobChange(changed, Outcome.UPDATED, (_event(EventKind.JOB_DELETE_ASKED, changed),))


def run_now(job: Job, runs: Sequence[Run], *, now: datetime) -> tuple[Run, JobEvent]:
    """A run on request. The overlap of the schedule does not apply to it."""
    _refuse_if_deleting(job)
    running = sum(run.state is RunState.RUNNING for run in runs)
    if running >= RUNNING_MAX:
        raise RefusedError(
            f"{running} runs of job {job.job_id} are in progress: expected at most {RUNNING_MAX}"
        )
    known = {run.run_id for run in runs}
    at = now
    while (run_id := requested_run_id(job.job_id, at)) in known:
        at += timedelta(seconds=1)
    return new_run(job, run_id, scheduled_at=None, started_at=now)


def new_run(
    job: Job, run_id: RunId, *, scheduled_at: datetime | None, started_at: datetime
) -> tuple[Run, JobEvent]:
    run = Run(
        run_id,
        job.job_id,
        job.template,
        started_at,
        completions=job.completions,
        parallelism=job.parallelism,
        retries=job.retries,
        deadline_seconds=job.deadline_seconds,
        fail_on=job.fail_on,
        scheduled_at=scheduled_at,
    )
    why = (
        "on request" if scheduled_at is None else f"scheduled for {scheduled_at:%Y-%m-%d %H:%M} UTC"
    )
    return run, JobEvent(EventKind.RUN_STARTED, f"run {run_id} started, {why}")


def cancel(run: Run, *, now: datetime) -> tuple[Run, JobEvent]:
    if run.state is not RunState.RUNNING:
        raise RefusedError(f"run {run.run_id} has ended: {run.state}")
    return cancelled(run, "cancelled on request", now)


def cancelled(run: Run, why: str, now: datetime) -> tuple[Run, JobEvent]:
    """The run without further attempts; those in progress are stopped by the next decision."""
    ended = replace(run, state=RunState.CANCELLED, reason=why, ended_at=now)
    return ended, JobEvent(EventKind.RUN_CANCELLED, f"run {run.run_id}: {why}")


def expired(job: Job | None, runs: Sequence[Run]) -> list[Run]:
    """Finished runs that are deleted, the oldest first: those beyond `keep`, and all of a deleted job.

    Without a record of the job the default of `keep` applies.
    """
    finished = sorted((run for run in runs if run.state is not RunState.RUNNING), key=_age)
    if job is not None and job.deleting:
        return finished
    keep = job.keep if job is not None else KEEP_DEFAULT
    return finished[: max(0, len(finished) - keep)]


def ended_by_deletion(
    job: Job | None, runs: Sequence[Run], now: datetime
) -> list[tuple[Run, JobEvent]]:
    """The runs in progress of a job that is being deleted, cancelled."""
    if job is None or not job.deleting:
        return []
    running = (run for run in runs if run.state is RunState.RUNNING)
    return [cancelled(run, f"job {job.job_id} is being deleted", now) for run in running]


def _age(run: Run) -> tuple[datetime, str]:
    return run.ended_at or run.started_at, run.run_id


def _times(job: Job) -> tuple[str, str] | None:
    return (job.schedule.cron, job.schedule.timezone) if job.schedule is not None else None


def _event(kind: EventKind, job: Job) -> JobEvent:
    return JobEvent(kind, f"job {job.job_id}")


def _refuse_if_deleting(job: Job) -> None:
    if job.deleting:
        raise RefusedError(f"job {job.job_id} is being deleted; try again when it is deleted")
