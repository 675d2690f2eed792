"""Which jobs are valid. An error names the field, the value and what is expected."""

import re
from datetime import datetime

from persys.core.jobs import cron
from persys.errors import InvalidError, MissingFieldError
from persys.model.job import COMPLETIONS_MAX, PARALLELISM_MAX, Job, Schedule
from persys.model.sets import Template
from persys.model.spec import ComposeSpec, ContainerSpec, VMSpec, managed_volumes_of, type_of

JOB_ID_LENGTH_MAX = 40  # so that <job>-<yyyymmddhhmmss>-<number> has at most 63 characters
RETRIES_MAX = 100
KEEP_MAX = 100
FAIL_ON_MAX = 64
EXIT_CODE_MAX = 255
DEADLINE_SECONDS_MAX = 366 * 24 * 3600
START_WITHIN_SECONDS_MIN = 10
START_WITHIN_SECONDS_MAX = 31 * 24 * 3600
_JOB_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def check_job(job: Job, *, now: datetime) -> None:
    """Raises InvalidError."""
    check_job_id(job.job_id)
    _check_range("completions", job.completions, 1, COMPLETIONS_MAX)
    _check_range("parallelism", job.parallelism, 1, PARALLELISM_MAX)
    _check_range("retries", job.retries, 0, RETRIES_MAX)
    _check_range("deadline_seconds", job.deadline_seconds, 0, DEADLINE_SECONDS_MAX)
    _check_range("keep", job.keep, 1, KEEP_MAX)
    if len(job.fail_on) > FAIL_ON_MAX:
        raise InvalidError(
            "fail_on", f"{len(job.fail_on)} exit codes: expected at most {FAIL_ON_MAX}"
        )
    for code in job.fail_on:
        _check_range("fail_on", code, 1, EXIT_CODE_MAX)
    _check_template(job.template)
    if job.schedule is not None:
        _check_schedule(job.schedule, now)


def check_job_id(job_id: str) -> None:
    if not job_id:
        raise MissingFieldError("job_id")
    if not _JOB_ID.fullmatch(job_id):
        raise InvalidError(
            "job_id",
            f"invalid job id {job_id[:80]!r}: expected 1 to {JOB_ID_LENGTH_MAX} of a-z, 0-9 and '-',"
            " beginning and ending with a letter or digit, for example backup",
        )


def _check_schedule(schedule: Schedule, now: datetime) -> None:
    cron.check(schedule.cron, schedule.timezone, now=now)
    _check_range(
        "schedule.start_within_seconds",
        schedule.start_within_seconds,
        START_WITHIN_SECONDS_MIN,
        START_WITHIN_SECONDS_MAX,
    )


def _check_template(template: Template) -> None:
    """Each member runs once, and has volumes of its own."""
    spec = template.spec
    where = f"template.{type_of(spec)}"
    match spec:
        case ContainerSpec() | VMSpec():
            if not spec.restart.runs_to_completion:
                raise InvalidError(
                    f"{where}.restart_policy",
                    f"invalid restart policy {spec.restart.name!r} of a job: expected no or on-failure",
                )
            if spec.health.restart_unhealthy:
                raise InvalidError(
                    f"{where}.health_check",
                    "invalid restart_unhealthy of a job: expected false, because only retries of the job"
                    " run a member again",
                )
        case ComposeSpec():
            if spec.needs.restarts:
                raise InvalidError(
                    "template.compose",
                    f"invalid restart policy of service {spec.needs.restarts!r} of a job: expected no",
                )
    if retained := [one.name for one in managed_volumes_of(spec) if one.retain]:
        raise InvalidError(
            f"{where}.managed_volumes",
            f"invalid retain of volume {retained[0]!r} of a job: expected false, because each member has"
            " volumes of its own, and they would stay for ever",
        )
    if template.stop_after_seconds:
        raise InvalidError(
            "template.stop_after",
            f"invalid stop_after '{template.stop_after_seconds}s' of a job: expected none, because a member"
            " is never moved; a deadline ends a run",
        )


def _check_range(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidError(field, f"invalid {field} '{value}': expected {least} to {most}")
