"""Decides which occurrence of a schedule starts a run now, and which ones are skipped.

Of the occurrences since the last decision only the newest can start; the others are skipped, with one event
that has their number. `Job.last_scheduled_at` is stored together with the run: an occurrence up to it is
never started again, also if the clock goes back. The work is bounded after any time of downtime: the newest
occurrence is searched backwards from now, and at most COUNTED_MAX skipped ones are counted.

After a recovery of the cluster (a restored snapshot, a rebuild, an accepted store) the records may be older
than what has happened. Occurrences between the snapshot and now may have run, so `recovered_job` skips them,
in the same restore, before the schedule is read again. A run in progress may have started attempts that its
record does not know, and ended those that it knows. An attempt is executed at most once, so `recovered_runs`
marks it: no attempt is created for such a run, and none is retried, because the number of attempts in the
record may be too low. Attempts that nodes still report are judged by these reports as usual; all others count
as failed, because they may have run. The run then ends: as succeeded only if all indexes are known to have
succeeded, else as failed, with the reason. A new run is started by the schedule or by a user.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, takewhile

from msgspec.structs import replace

from persys.core.jobs.changes import RUNNING_MAX, cancelled, new_run
from persys.core.jobs.cron import Cron
from persys.core.jobs.members import scheduled_run_id
from persys.core.jobs.situation import JobEvent
from persys.errors import InvalidError
from persys.model.event import EventKind
from persys.model.job import Job, Overlap, Run, RunState, Schedule

COUNTED_MAX = 100


@dataclass(frozen=True, slots=True)
class Due:
    """The job, the run and the events are stored in one transaction.

    `replaced` are the runs that it replaces, cancelled: each is stored before, in a transaction of its own.
    """

    job: Job
    run: Run | None  # None: nothing is started
    replaced: tuple[tuple[Run, JobEvent], ...] = ()
    events: tuple[JobEvent, ...] = ()
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    count: int
    is_more: bool = False  # the count is the least

    @property
    def text(self) -> str:
        count = f"{self.count} or more" if self.is_more else str(self.count)
        return "1 occurrence" if count == "1" else f"{count} occurrences"


def due(job: Job, runs: Sequence[Run], now: datetime) -> Due | None:
    """`runs`: all of the job. None: no occurrence is due."""
    schedule = job.schedule
    if schedule is None or job.suspended or job.deleting:
        return None
    cron = Cron(schedule.cron, schedule.timezone)
    newest = cron.until(now)
    if newest is None or newest <= settled_until(job):
        return None
    missed = skipped_between(cron, settled_until(job), newest)
    job = replace(job, last_scheduled_at=newest)
    rule, why = _refusal(job, schedule, newest, runs, now)
    if rule:
        missed = Skipped(missed.count + 1, missed.is_more)
        return Due(job, None, events=(skipped_event(job, missed, why),), rule=rule)
    events = [skipped_event(job, missed, "a later one was due too")] if missed.count else []
    run, started = new_run(
        job, scheduled_run_id(job.job_id, newest), scheduled_at=newest, started_at=now
    )
    replaced: tuple[tuple[Run, JobEvent], ...] = ()
    if schedule.overlap is Overlap.REPLACE:
        why = f"replaced by {run.run_id}"
        replaced = tuple(cancelled(one, why, now) for one in _running(runs))
    return Due(job, run, replaced, (*events, started), "replace" if replaced else "start")


def next_occurrence(job: Job, now: datetime) -> datetime | None:
    """The next occurrence that can start, after now. None: the job has no schedule or is suspended."""
    if job.schedule is None or job.suspended or job.deleting:
        return None
    return Cron(job.schedule.cron, job.schedule.timezone).after(max(now, settled_until(job)))


def settled_until(job: Job) -> datetime:
    """Occurrences up to here are not started any more."""
    return job.last_scheduled_at or job.created_at


def skipped_between(cron: Cron, after: datetime, before: datetime) -> Skipped:
    """The occurrences between both, without them."""
    between = takewhile(lambda found: found < before, cron.all_after(after))
    count = sum(1 for _ in islice(between, COUNTED_MAX))
    return Skipped(count, is_more=count == COUNTED_MAX)


def skipped_event(job: Job, skipped: Skipped, why: str) -> JobEvent:
    return JobEvent(
        EventKind.JOB_OCCURRENCES_SKIPPED, f"{skipped.text} of job {job.job_id} skipped: {why}"
    )


def recovered_job(job: Job, now: datetime) -> tuple[Job, JobEvent | None]:
    """The job without occurrences before now, and the event about those that are skipped."""
    if job.schedule is None or settled_until(job) >= now:
        return job, None
    skipped = replace(job, last_scheduled_at=now)
    if job.suspended or job.deleting:
        return skipped, None
    try:
        cron = Cron(job.schedule.cron, job.schedule.timezone)
    except InvalidError:
        return skipped, None  # a time zone that this machine does not know
    missed = skipped_between(cron, settled_until(job), now)
    if not missed.count:
        return skipped, None
    return skipped, skipped_event(job, missed, "the cluster was recovered; they may have run")


def recovered_runs(runs: Iterable[Run], now: datetime) -> list[Run]:
    return [
        replace(run, recovered_at=now) if run.state is RunState.RUNNING else run for run in runs
    ]


def _refusal(
    job: Job, schedule: Schedule, newest: datetime, runs: Sequence[Run], now: datetime
) -> tuple[str, str]:
    """The rule by which the newest occurrence is skipped, and why; both empty if it starts."""
    running = _running(runs)
    run_id = scheduled_run_id(job.job_id, newest)
    if now - newest > timedelta(seconds=schedule.start_within_seconds):
        late = f"{newest:%Y-%m-%d %H:%M} UTC"
        return "too-late", f"the last of them, {late}, is over {schedule.start_within_seconds}s ago"
    if any(run.run_id == run_id for run in runs):
        return "exists", f"run {run_id} exists"
    if running and schedule.overlap is Overlap.FORBID:
        return "overlap", f"run {running[0].run_id} is in progress"
    if len(running) >= RUNNING_MAX and schedule.overlap is Overlap.ALLOW:
        return "too-many", f"{len(running)} runs are in progress: expected at most {RUNNING_MAX}"
    return "", ""


def _running(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.state is RunState.RUNNING]
