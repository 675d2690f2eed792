"""Decides which orders an agent resumes after an unclean exit.

An order that crashed the agent several times while no other order ran is quarantined: it is failed, and tried
again only with a new order.
"""

from collections.abc import Mapping
from enum import StrEnum

from persys.model.ids import WorkloadId
from persys.model.status import Failure, FailureReason

QUARANTINED = "Quarantined"
CRASHES_MAX = 2


class LastExit(StrEnum):
    CLEAN = "clean"
    KILLED = "killed"  # from outside: kill -9, power, the machine
    CRASHED = "crashed"  # by a fatal signal or an exception of its own


def last_exit(*, clean: bool, trace: str) -> LastExit:
    """`trace` is the crash trace that the last run has written."""
    if clean:
        return LastExit.CLEAN
    return LastExit.CRASHED if trace.strip() else LastExit.KILLED


def crashes_after(
    crashes: Mapping[WorkloadId, int], ended: LastExit, *, alone: WorkloadId | None
) -> dict[WorkloadId, int]:
    """How often each order has crashed the agent. Only a crash while no other order ran counts."""
    if ended is not LastExit.CRASHED or not alone:
        return dict(crashes)
    return {**crashes, alone: crashes.get(alone, 0) + 1}


def quarantine(crashes: int) -> Failure | None:
    """Why an order is not resumed; None if it may be."""
    if crashes < CRASHES_MAX:
        return None
    text = f"quarantined: it crashed the agent {crashes} times; see the log of the agent"
    return Failure(FailureReason.RUNTIME_ERROR, text, code=QUARANTINED)
