"""Which orders an agent may resume after it did not stop cleanly, and in which way.

One that alone ended the agent several times, by a fault of the agent itself, is quarantined: failed, and
tried again only when a new order comes, as other transient failures are.
"""

from collections.abc import Mapping
from enum import StrEnum

from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId

QUARANTINED = "Quarantined"
CRASHES_MAX = 2


class LastExit(StrEnum):
    CLEAN = "clean"
    KILLED = "killed"  # from outside: kill -9, power, the machine
    CRASHED = "crashed"  # by a fatal signal or an exception of its own


def last_exit(*, clean: bool, trace: str) -> LastExit:
    """`trace` is what a run that ends by its own fault leaves behind."""
    if clean:
        return LastExit.CLEAN
    return LastExit.CRASHED if trace.strip() else LastExit.KILLED


def crashes_after(
    crashes: Mapping[WorkloadId, int], ended: LastExit, *, alone: WorkloadId | None
) -> dict[WorkloadId, int]:
    """How often each order has ended the agent. Only a crash while it was alone counts."""
    if ended is not LastExit.CRASHED or not alone:
        return dict(crashes)
    return {**crashes, alone: crashes.get(alone, 0) + 1}


def quarantine(crashes: int) -> Failure | None:
    """Why an order is not resumed; None if it may be."""
    if crashes < CRASHES_MAX:
        return None
    text = f"quarantined: work on it ended the agent {crashes} times; the agent's log has the cause"
    return Failure(FailureReason.RUNTIME_ERROR, text, code=QUARANTINED)
