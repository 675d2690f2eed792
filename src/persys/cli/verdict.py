"""Whether a workload has come to where it was asked to be, judged from one look at it."""

from enum import Enum
from typing import NamedTuple

from persys.wire.gen.control.v1.control_pb2 import WorkloadView


class Goal(Enum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    GONE = "Deleted"


class Verdict(Enum):
    REACHED = "reached"
    FAILED = "failed"
    OPEN = "open"


class Wanted(NamedTuple):
    """What was asked for, and how the workload looked before: the same look again is no news yet."""

    goal: Goal
    revision: str = ""  # "": the scheduler did not say
    before: WorkloadView | None = None


def judge(workload: WorkloadView | None, wanted: Wanted, *, patient: bool) -> Verdict:
    """`patient` while the scheduler may not yet have looked at what it was asked for.

    A failed workload is still open during its fast attempts; the slow ones after them may take hours.
    """
    if workload is None or workload.status.lower() == "deleted":
        if wanted.goal is Goal.GONE:
            return Verdict.REACHED
        return Verdict.OPEN if patient else Verdict.FAILED
    if wanted.goal is Goal.GONE or (patient and _is_old_news(workload, wanted)):
        return Verdict.OPEN
    if wanted.revision and workload.revision_id != wanted.revision:
        return Verdict.OPEN
    if workload.status.lower() == wanted.goal.value.lower() or _is_complete(workload, wanted.goal):
        return Verdict.REACHED
    if workload.status.lower() == "failed" and not _is_retried_soon(workload):
        return Verdict.FAILED
    return Verdict.OPEN


def _is_retried_soon(workload: WorkloadView) -> bool:
    """A scheduler that does not tell its limit never goes over to slow attempts."""
    at_limit = 0 < workload.retry_max_attempts <= workload.retry_attempts
    return workload.HasField("retry_next_at") and not at_limit


def _is_old_news(workload: WorkloadView, wanted: Wanted) -> bool:
    before = wanted.before
    return before is not None and (before.status, before.last_updated, before.reason) == (
        workload.status,
        workload.last_updated,
        workload.reason,
    )


def _is_complete(workload: WorkloadView, goal: Goal) -> bool:
    """It ran and ended well, as its restart policy allows."""
    return goal is Goal.RUNNING and (workload.status.lower(), workload.reason.code) == (
        "stopped",
        "Completed",
    )
