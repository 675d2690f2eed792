"""What was last sent to a node for a workload, and how that went. Lives in memory only.

After a restart nothing is known to have been sent, so what is not converged is sent again: orders are
idempotent and the agent skips what it has already done.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.core.retry import GROWTHS_MAX
from persys.model.ids import Revision
from persys.model.workload import Desired

UNANSWERED_FIRST_AFTER = timedelta(seconds=1)
UNANSWERED_LONGEST_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a node shall make of a workload."""

    revision: Revision
    desired: Desired
    epoch: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    goal: Goal
    sent_at: datetime
    answered_at: datetime | None = None
    unanswered_count: int = 0  # tries in a row that got no answer
    again_at: datetime | None = None  # when to send again, after no answer
    problem: str = ""
    task_id: str = ""  # what the node calls the action it began
    refused: bool = False  # the node answered, and does not do it
    asked_at: datetime | None = None  # when the node last answered a question about it
    lost: bool = False  # the node took it, and its tasks do not show it
    repeats: int = 0  # how often the same was sent and taken before

    @property
    def in_flight(self) -> bool:
        return self.answered_at is None and self.again_at is None


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
    """The node gave no answer: send again later, a little later each time."""
    growth = 2 ** min(dispatch.unanswered_count, GROWTHS_MAX)
    delay = min(UNANSWERED_FIRST_AFTER * growth, UNANSWERED_LONGEST_AFTER)
    return Dispatch(
        dispatch.goal,
        dispatch.sent_at,
        unanswered_count=dispatch.unanswered_count + 1,
        again_at=now + delay,
        problem=problem,
        repeats=dispatch.repeats,
    )
