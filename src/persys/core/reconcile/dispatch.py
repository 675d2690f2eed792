"""The last order sent to a node for a workload, and its result. Held in memory only.

After a restart no order is known, so every workload that has not converged is sent again: orders are
idempotent and the agent skips what it has already done.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.core.backoff import doubled
from persys.model.ids import Revision
from persys.model.workload import Desired

UNANSWERED_FIRST_AFTER = timedelta(seconds=1)
UNANSWERED_LONGEST_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Goal:
    """The state that a node has to reach for a workload."""

    revision: Revision
    desired: Desired
    epoch: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    goal: Goal
    sent_at: datetime
    answered_at: datetime | None = None
    unanswered_count: int = 0  # consecutive attempts without a response
    resend_at: datetime | None = None  # when to send again after no response
    problem: str = ""
    task_id: str = ""  # the node's id of the action that it started
    refused: bool = False  # the node responded with a refusal
    polled_at: datetime | None = None  # when a poll about it was last sent or answered
    lost: bool = False  # the node accepted it, but does not list a task for it
    repeats: int = 0  # how often the same order was sent and accepted before

    @property
    def in_flight(self) -> bool:
        return self.answered_at is None and self.resend_at is None


def answered(
    dispatch: Dispatch, *, now: datetime, task_id: str = "", refused: bool = False
) -> Dispatch:
    return Dispatch(
        dispatch.goal,
        dispatch.sent_at,
        answered_at=now,
        task_id=task_id,
        refused=refused,
        repeats=dispatch.repeats,
    )


def unanswered(dispatch: Dispatch, problem: str, *, now: datetime) -> Dispatch:
    """The node did not respond: send again after a growing delay."""
    delay = doubled(
        UNANSWERED_FIRST_AFTER, dispatch.unanswered_count, longest=UNANSWERED_LONGEST_AFTER
    )
    return Dispatch(
        dispatch.goal,
        dispatch.sent_at,
        unanswered_count=dispatch.unanswered_count + 1,
        resend_at=now + delay,
        problem=problem,
        repeats=dispatch.repeats,
    )
