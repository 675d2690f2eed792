"""What is known of one workload at one moment, and what may be decided about it.

The functions below read a situation; none of them decides. They answer what was seen and sent, and in what
order: an observation older than the last dispatch is no news.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from persys.core.deviations import DRIFT
from persys.core.dispatch import Dispatch, Goal
from persys.core.effects import Effect
from persys.core.health import HEALTH
from persys.core.liveness import Phase
from persys.core.placement.filters import Rejection
from persys.core.placement.needs import Needs
from persys.core.placement.select import Placed, Unplaceable
from persys.core.retry import RetryPolicy
from persys.model.assignment import Assignment, Tombstone
from persys.model.belief import Belief, Retry, Status
from persys.model.failure import Failure
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.observation import Actual, Observation
from persys.model.workload import Desired, Workload

COMPLETED = "Completed"
STATE_MISMATCH = "StateMismatch"  # the node reports another state than the one that it had
RUNTIME_NOT_AVAILABLE = "RuntimeNotAvailable"


@dataclass(frozen=True, slots=True)
class Policy:
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    apply_deadline: timedelta = timedelta(seconds=45)
    vm_apply_deadline: timedelta = timedelta(seconds=240)
    delete_deadline: timedelta = timedelta(seconds=60)
    ask_interval: timedelta = timedelta(seconds=1)
    missing_grace: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the workload where it is not bound.

    `counts`: it is known from the cluster's own records or from a proof of assignment. What a node reports
    without a proof is shown and decides nothing.
    """

    node_id: NodeId
    epoch: int
    doomed: bool = False  # a tombstone names it
    may_live: bool = True  # False: its node is confirmed dead, or its agent has stopped it by now
    lost: bool = False  # its node is not ready
    stops_at: datetime | None = None  # by then its agent has stopped it
    counts: bool = True
    proven: bool = False  # this cluster gave it that epoch


@dataclass(frozen=True, slots=True)
class Aside:
    """A node that turned the workload away, and gets it not again until then."""

    node_id: NodeId
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is known about one workload at one moment."""

    workload: Workload
    assignment: Assignment | None = None
    belief: Belief | None = None
    retry: Retry | None = None
    observation: Observation | None = None
    observed_since: datetime | None = None  # how long it has looked like that
    dispatch: Dispatch | None = None
    phase: Phase = Phase.LOST  # of the assigned node
    reports: bool = False  # the assigned node sends changes by itself
    draining: bool = False  # the assigned node shall become empty
    confirmed_dead: bool = False  # the operator vouches that the assigned node runs nothing
    copies: tuple[Copy, ...] = ()  # on other nodes than the assigned one
    stops_alone: bool = False  # the assigned node stops what has been too long without us
    silent: timedelta = timedelta()  # since the assigned node was last heard
    neighbours: int = 0  # workloads on the assigned node, this one included
    asides: tuple[Aside, ...] = ()  # placement does not see these nodes
    next_epoch: int = 0  # of the cluster's counter, for an assignment that is made now


@dataclass(frozen=True, slots=True)
class Decision:
    """What to record, do and look at next. `None` in a record's place means: there shall be none."""

    assignment: Assignment | None
    belief: Belief | None
    retry: Retry | None
    forget: bool = False
    tombstone: Tombstone | None = None
    effects: tuple[Effect, ...] = ()
    wake_at: datetime | None = None
    waits_for_room: bool = False
    fulfilled: bool = False  # the last dispatch has done its work


class Rooms:
    """Placement as `decide` needs it: where a need fits, and whether one node could take it.

    `place` is also told which assignment is given up for it, if any.
    """

    def __init__(
        self,
        place: Callable[[Needs, Assignment | None], Placed | Unplaceable],
        fits_on: Callable[[WorkloadId, NodeId, Needs], Rejection | None],
    ) -> None:
        self.place = place
        self.fits_on = fits_on


def current(situation: Situation, actual: Actual) -> Observation | None:
    """The observation, if it says `actual` of this assignment and is newer than what was sent."""
    seen = situation.observation
    if (
        seen is None
        or situation.assignment is None
        or seen.actual is not actual
        or not speaks_of(seen, situation.workload.revision, situation.assignment)
        or not after_sending(situation, seen)
    ):
        return None
    return seen


def after_sending(situation: Situation, seen: Observation) -> bool:
    dispatch = situation.dispatch
    if dispatch is None:
        return True
    return not dispatch.in_flight and seen.seen_at >= dispatch.sent_at


def awaits_retry(situation: Situation, retry: Retry, now: datetime) -> bool:
    return retry.next_at is not None and not retried(situation, retry) and now < retry.next_at


def retried(situation: Situation, retry: Retry) -> bool:
    """Whether the planned attempt has been sent."""
    dispatch = situation.dispatch
    return dispatch is not None and retry.next_at is not None and dispatch.sent_at >= retry.next_at


def due_at(situation: Situation, dispatch: Dispatch, deadline: timedelta) -> datetime:
    """When what was sent should have come about.

    A node that reports by itself and says it is still at it gets its time anew with each such word: it may
    have a hundred others to do first, or a large image to fetch.
    """
    at_work = current(situation, Actual.PENDING) if situation.reports else None
    return max(dispatch.sent_at, at_work.seen_at if at_work else dispatch.sent_at) + deadline


def overdue(situation: Situation, goal: Goal, deadline: timedelta, now: datetime) -> bool:
    """What was sent has not come about in time, and that has not been counted yet."""
    dispatch, retry = situation.dispatch, situation.retry
    return (
        dispatch is not None
        and dispatch.goal == goal
        and dispatch.answered_at is not None
        and now >= due_at(situation, dispatch, deadline)
        and (retry is None or retried(situation, retry))
    )


def believe(
    situation: Situation,
    status: Status,
    now: datetime,
    /,
    code: str = "",
    message: str = "",
    *,
    failure: Failure | None = None,
    revision: Revision | None = None,
    epoch: int | None = None,
    metadata: dict[str, str] | None = None,
) -> Belief:
    """The old belief itself when nothing changed, so that nothing is written."""
    old = situation.belief
    if epoch is None:
        epoch = situation.assignment.epoch if situation.assignment else old.epoch if old else 0
    if revision is None:
        revision = old.revision if old else Revision("")
    if (
        old is not None
        and (old.status, old.code, old.message) == (status, code, message)
        and (old.failure, old.revision, old.epoch) == (failure, revision, epoch)
        and (metadata is None or metadata.get(HEALTH) == old.metadata.get(HEALTH))
    ):
        return old
    changed_at = old.changed_at if old is not None and old.status is status else now
    return Belief(
        situation.workload.id,
        status,
        changed_at,
        code=code,
        message=message,
        failure=failure,
        revision=revision,
        epoch=epoch,
        metadata=metadata if metadata is not None else old.metadata if old else {},
    )


def speaks_of(seen: Observation, revision: Revision, assignment: Assignment) -> bool:
    """Whether it is about this assignment; an agent that does not say is taken at its word."""
    return (
        seen.node_id == assignment.node_id
        and seen.revision in ("", revision)
        and seen.epoch in (0, assignment.epoch)
    )


def is_finished(situation: Situation) -> bool:
    """It ran to completion at this revision, so there is nothing to run again."""
    belief, workload = situation.belief, situation.workload
    return (
        workload.desired is Desired.RUNNING
        and belief is not None
        and belief.code == COMPLETED
        and belief.revision == workload.revision
    )


def was_settled(situation: Situation) -> bool:
    """As far as is recorded, all is well: no news is no reason to act."""
    belief, assignment = situation.belief, situation.assignment
    assert assignment is not None
    return (
        belief is not None
        and belief.epoch == assignment.epoch
        and fulfils(belief, situation.workload)
    )


def had_settled(situation: Situation) -> bool:
    """All was well, and what its node reports now is shown and not remedied yet."""
    belief, assignment = situation.belief, situation.assignment
    assert assignment is not None
    return was_settled(situation) or (
        belief is not None
        and belief.code == STATE_MISMATCH
        and belief.epoch == assignment.epoch
        and belief.revision == situation.workload.revision
    )


def fulfils(belief: Belief, workload: Workload) -> bool:
    """Whether what is believed is what is wanted, at the revision that is wanted."""
    if belief.revision != workload.revision:
        return False
    if workload.desired is Desired.RUNNING:
        return belief.status is Status.RUNNING or belief.code == COMPLETED
    return workload.desired is Desired.STOPPED and belief.status is Status.STOPPED


def confirms(seen: Observation, belief: Belief, workload: Workload, assignment: Assignment) -> bool:
    """Whether what is seen is what is believed and wanted: then there is nothing to decide."""
    return (
        seen.actual is Actual.RUNNING
        and belief.status is Status.RUNNING
        and workload.desired is Desired.RUNNING
        and seen.failure is None
        and not seen.metadata.get(DRIFT)
        and seen.revision == belief.revision == workload.revision
        and seen.epoch == belief.epoch == assignment.epoch
    )
