"""Jobs: what runs to completion, on request or by a schedule, and its runs.

A run is stored before its members are created. The id of a scheduled run is its occurrence, and it is created
in one transaction with `Job.last_scheduled_at`: an occurrence creates at most one run.
"""

from datetime import datetime
from enum import StrEnum
from typing import NewType

from msgspec import Struct

from persys.model.sets import Template

JobId = NewType("JobId", str)
# <job>-<yyyymmddhhmm>, in UTC; of a run on request: <job>-<yyyymmddhhmmss>
RunId = NewType("RunId", str)

COMPLETIONS_MAX = 10_000
PARALLELISM_MAX = 1_000
KEEP_DEFAULT = 10
START_WITHIN_SECONDS_DEFAULT = 3600


class Overlap(StrEnum):
    """What happens to an occurrence while the last run is in progress."""

    FORBID = "forbid"  # it is skipped
    ALLOW = "allow"
    REPLACE = "replace"  # the last run is cancelled


class Schedule(Struct, frozen=True, omit_defaults=True):
    cron: str
    timezone: str = ""  # "": UTC
    overlap: Overlap = Overlap.FORBID
    start_within_seconds: int = START_WITHIN_SECONDS_DEFAULT


class Job(Struct, frozen=True):
    job_id: JobId
    template: Template
    created_at: datetime
    updated_at: datetime
    completions: int = 1
    parallelism: int = 1
    retries: int = 0
    deadline_seconds: int = 0  # of a run; 0: none
    keep: int = KEEP_DEFAULT
    fail_on: tuple[int, ...] = ()
    schedule: Schedule | None = None
    suspended: bool = False
    deleting: bool = False
    # Occurrences up to here were started or skipped. None: those up to `created_at`.
    last_scheduled_at: datetime | None = None


class RunState(StrEnum):
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class RunMember(Struct, frozen=True, omit_defaults=True):
    """An index of a run that has neither succeeded nor failed: its last attempt, which is in progress unless
    `retry_at` is set."""

    index: int
    attempts: int = 1
    created: bool = False  # the workload of the last attempt was seen: it is not created again
    retry_at: datetime | None = None  # the last attempt failed, and the next one starts then
    reason: str = ""  # of the last failed attempt


class Run(Struct, frozen=True):
    """`template` is that of the job when the run was created.

    Indexes are started in ascending order. `succeeded` and `failed` are ranges of indexes, the first and the
    last of each, so that the record stays small.
    """

    run_id: RunId
    job_id: JobId
    template: Template
    started_at: datetime
    completions: int = 1
    parallelism: int = 1
    retries: int = 0
    deadline_seconds: int = 0
    fail_on: tuple[int, ...] = ()
    scheduled_at: datetime | None = None  # None: on request
    state: RunState = RunState.RUNNING
    reason: str = ""
    ended_at: datetime | None = None
    next_index: int = 0  # indexes from here were not started
    succeeded: tuple[tuple[int, int], ...] = ()
    failed: tuple[tuple[int, int], ...] = ()  # no further attempt follows
    members: tuple[RunMember, ...] = ()  # ascending by index
    # The record comes from a recovery: attempts may have run that it does not know, so none is created.
    recovered_at: datetime | None = None
