"""Builders of jobs and runs for tests."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from persys.core.jobs.situation import Attempt, AttemptState, RunSituation
from persys.model.ids import Revision
from persys.model.job import Job, JobId, Overlap, Run, RunId, RunState, Schedule
from persys.model.sets import Template
from persys.model.spec import ContainerSpec, RestartPolicy

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
HOURLY = Schedule("0 * * * *")
ONCE = RestartPolicy("no")


def after(**span: float) -> datetime:
    return NOON + timedelta(**span)


def a_template(**changes: object) -> Template:
    template = Template(ContainerSpec("busybox", restart=ONCE), Revision("r1"))
    return replace(template, **changes)


def a_job(schedule: Schedule | None = None, **changes: object) -> Job:
    job = Job(JobId("backup"), a_template(), created_at=NOON, updated_at=NOON, schedule=schedule)
    return replace(job, **changes)


def hourly(
    overlap: Overlap = Overlap.FORBID, *, start_within: int = 3600, **changes: object
) -> Job:
    schedule = replace(HOURLY, overlap=overlap, start_within_seconds=start_within)
    return a_job(schedule, **changes)


def a_run(name: str = "backup-1", state: RunState = RunState.RUNNING, **changes: object) -> Run:
    run = Run(RunId(name), JobId("backup"), a_template(), started_at=NOON, state=state)
    if state is not RunState.RUNNING:
        run = replace(run, ended_at=after(seconds=60))
    return replace(run, **changes)


def attempts(run: Run, states: Mapping[int, Attempt | AttemptState]) -> RunSituation:
    """The run with these last attempts; the others are absent."""
    return RunSituation(
        run,
        {index: one if isinstance(one, Attempt) else Attempt(one) for index, one in states.items()},
    )


def exited(code: int) -> Attempt:
    return Attempt(AttemptState.FAILED, exit_code=code, reason=f"exited with {code}")
