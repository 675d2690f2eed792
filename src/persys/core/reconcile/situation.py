"""The input and the output of `decide`: `Situation` and `Decision`, with predicates over a situation.

`Rule` is the type of the tables through which `decide` goes. The predicates only read. An observation that is
older than the last dispatch is ignored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from persys.core.agent.deviations import DRIFT
from persys.core.agent.health import HEALTH
from persys.core.agent.report import has_moved, has_restarted
from persys.core.nodes import Phase
from persys.core.placement.filters import Rejection
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, Unplaceable
from persys.core.reconcile.dispatch import Dispatch, Goal
from persys.core.reconcile.effects import Effect
from persys.core.reconcile.retry import RetryPolicy
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Assignment, Tombstone
from persys.model.status import Actual, Failure, Observation, Retry, Status, WorkloadStatus
from persys.model.workload import Desired, Workload

COMPLETED = "Completed"
STATE_MISMATCH = "StateMismatch"  # the node reports another state than the desired one
RUNTIME_NOT_AVAILABLE = "RuntimeNotAvailable"


@dataclass(frozen=True, slots=True)
class Policy:
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    apply_deadline: timedelta = timedelta(seconds=45)
    vm_apply_deadline: timedelta = timedelta(seconds=240)
    delete_deadline: timedelta = timedelta(seconds=60)
    poll_interval: timedelta = timedelta(seconds=1)
    missing_grace: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the workload on a node to which it is not assigned.

    `counts`: the copy is in the cluster's own records or has a proof of assignment. A copy that a node
    reports without a proof is shown, but does not affect decisions.
    """

    node_id: NodeId
    epoch: int
    being_removed: bool = False  # it has a tombstone
    may_run: bool = True  # False: its node is confirmed dead, or its agent has stopped it
    lost: bool = False  # its node is not ready
    draining: bool = False  # its node is being drained
    stops_at: datetime | None = None  # by then its agent has stopped it
    counts: bool = True
    proven: bool = False  # it has a valid proof of assignment for this epoch
    kept: Tombstone | None = None  # set if it stays until the workload runs on its new node


@dataclass(frozen=True, slots=True)
class RejectedNode:
    """A node that rejected the workload and is excluded from its placement until then."""

    node_id: NodeId
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that is known about one workload at one moment."""

    workload: Workload
    assignment: Assignment | None = None
    workload_status: WorkloadStatus | None = None
    retry: Retry | None = None
    observation: Observation | None = None
    observed_since: datetime | None = None  # when the observed state last changed
    dispatch: Dispatch | None = None
    phase: Phase = Phase.LOST  # of the assigned node
    reports: bool = False  # the agent of the assigned node reports changes without being polled
    draining: bool = False  # the assigned node is being drained
    confirmed_dead: bool = False  # an operator declared the assigned node dead
    copies: tuple[Copy, ...] = ()  # on other nodes than the assigned one
    supports_stop_after: bool = False  # the agent of the assigned node supports `stop_after`
    silent: timedelta = timedelta()  # since the last heartbeat of the assigned node
    # The assigned node has contacted this leader within its lease. A new leader, and one that had no store,
    # gives every node a lease without contact.
    in_contact: bool = False
    node_workload_count: int = 0  # workloads on the assigned node, including this one
    rejected_nodes: tuple[RejectedNode, ...] = ()  # excluded from placement
    next_epoch: int = 0  # of the cluster's counter, for a new assignment
    offload_after: timedelta = timedelta(seconds=30)  # waiting before higher tiers may be used
    draining_since: datetime | None = None  # the start of the drain of the assigned node
    tier: int = 0  # of the assigned node
    may_return: bool = False  # to tier 0: there is capacity, and few others return now

    def read(self, rejected_nodes: tuple[RejectedNode, ...], next_epoch: int) -> "Situation":
        """The same situation with these values. On the hot path, and faster than `replace`."""
        return Situation(
            self.workload,
            self.assignment,
            self.workload_status,
            self.retry,
            self.observation,
            self.observed_since,
            self.dispatch,
            self.phase,
            self.reports,
            self.draining,
            self.confirmed_dead,
            self.copies,
            self.supports_stop_after,
            self.silent,
            self.in_contact,
            self.node_workload_count,
            rejected_nodes,
            next_epoch,
            self.offload_after,
            self.draining_since,
            self.tier,
            self.may_return,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The records to store, the effects to perform and the time of the next call.

    `None` in place of a record deletes it.
    """

    assignment: Assignment | None
    workload_status: WorkloadStatus | None
    retry: Retry | None
    forget: bool = False
    tombstone: Tombstone | None = None
    effects: tuple[Effect, ...] = ()
    wake_at: datetime | None = None
    waits_for_capacity: bool = False
    fulfilled: bool = False  # the last dispatch has reached its goal
    rule: str = ""  # the name of the rule that made the decision
    released: Tombstone | None = None  # of a copy that was kept and must be removed now
    restored: Tombstone | None = (
        None  # of a copy that was kept and is assigned again: it is dropped
    )

    def by(self, rule: str) -> "Decision":
        """The same decision, made by this rule. On the hot path, and faster than `replace`."""
        return Decision(
            self.assignment,
            self.workload_status,
            self.retry,
            self.forget,
            self.tombstone,
            self.effects,
            self.wake_at,
            self.waits_for_capacity,
            self.fulfilled,
            rule,
            self.released,
            self.restored,
        )


class Placer:
    """Placement as `decide` uses it: find a node for requirements, or check one node.

    `place` also takes the assignment that the new one replaces, if any. `awaited` tells whether another
    workload waits for capacity of the node.
    """

    def __init__(
        self,
        place: Callable[[Requirements, Assignment | None], Placed | Unplaceable],
        fits_on: Callable[[WorkloadId, NodeId, Requirements], Rejection | None],
        awaited: Callable[[NodeId], bool] = lambda _node_id: False,
    ) -> None:
        self.place = place
        self.fits_on = fits_on
        self.awaited = awaited


class Case(NamedTuple):
    """What a rule may use. `roll` in [0, 1) places a retry inside its jitter window: 0 is earliest.

    `as_stored` is the situation before a retry of another revision was dropped from it.
    """

    situation: Situation
    placer: Placer
    policy: Policy
    now: datetime
    roll: float
    as_stored: Situation


@dataclass(frozen=True, slots=True)
class Rule:
    """`apply` returns a decision, or None if the rule does not apply.

    `name` is stable: it is shown in logs, in events and by `persysctl explain`.
    """

    name: str
    apply: Callable[[Case], Decision | None]


def first_match(rules: Sequence[Rule], case: Case) -> Decision:
    """The decision of the first rule that applies, with the name of that rule.

    A rule with a table of its own returns a decision that already has a name.
    """
    for rule in rules:
        decision = rule.apply(case)
        if decision is not None:
            return decision if decision.rule else decision.by(rule.name)
    raise AssertionError("the last rule of a table always applies")


def fresh_observation(situation: Situation, actual: Actual) -> Observation | None:
    """The observation, if it reports `actual` for this assignment and is newer than the last dispatch."""
    seen = situation.observation
    if (
        seen is None
        or situation.assignment is None
        or seen.actual is not actual
        or not is_about(seen, situation.workload.revision, situation.assignment)
        or not is_after_dispatch(situation, seen)
    ):
        return None
    return seen


def is_after_dispatch(situation: Situation, seen: Observation) -> bool:
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
    """The deadline of the last dispatch.

    Each progress report of a node that reports changes extends it: the node may have other work queued, or
    pull a large image.
    """
    at_work = fresh_observation(situation, Actual.PENDING) if situation.reports else None
    return max(dispatch.sent_at, at_work.seen_at if at_work else dispatch.sent_at) + deadline


def overdue(situation: Situation, goal: Goal, deadline: timedelta, now: datetime) -> bool:
    """Whether the last dispatch missed its deadline, and that is not yet counted as a failure."""
    dispatch, retry = situation.dispatch, situation.retry
    return (
        dispatch is not None
        and dispatch.goal == goal
        and dispatch.answered_at is not None
        and now >= due_at(situation, dispatch, deadline)
        and (retry is None or retried(situation, retry))
    )


def next_status(
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
    healthy: bool = False,
) -> WorkloadStatus:
    """Build the new status. Returns the old one when nothing changed, so that nothing is written.

    `healthy`: it runs as intended now, and its check, if any, passes.
    """
    old = situation.workload_status
    if epoch is None:
        epoch = situation.assignment.epoch if situation.assignment else old.epoch if old else 0
    if revision is None:
        revision = old.revision if old else Revision("")
    healthy_since = _healthy_since(old, revision, epoch, metadata, now) if healthy else None
    if (
        old is not None
        and (old.status, old.code, old.message) == (status, code, message)
        and (old.failure, old.revision, old.epoch) == (failure, revision, epoch)
        and old.healthy_since == healthy_since
        and (metadata is None or not _reports_change(old.metadata, metadata))
    ):
        return old
    changed_at = old.changed_at if old is not None and old.status is status else now
    return WorkloadStatus(
        situation.workload.id,
        status,
        changed_at,
        code=code,
        message=message,
        failure=failure,
        revision=revision,
        epoch=epoch,
        metadata=metadata if metadata is not None else old.metadata if old else {},
        healthy_since=healthy_since,
    )


def _healthy_since(
    old: WorkloadStatus | None,
    revision: Revision,
    epoch: int,
    metadata: Mapping[str, str] | None,
    now: datetime,
) -> datetime:
    """A restart, another revision and another assignment begin again."""
    if (
        old is None
        or old.healthy_since is None
        or (old.revision, old.epoch) != (revision, epoch)
        or (metadata is not None and has_restarted(old.metadata, metadata))
    ):
        return now
    return old.healthy_since


def _reports_change(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return old.get(HEALTH) != new.get(HEALTH) or has_restarted(old, new) or has_moved(old, new)


def is_about(seen: Observation, revision: Revision, assignment: Assignment) -> bool:
    """Whether the observation is about this assignment. A missing revision or epoch matches any."""
    return (
        seen.node_id == assignment.node_id
        and seen.revision in ("", revision)
        and seen.epoch in (0, assignment.epoch)
    )


def kept_copy(situation: Situation) -> Copy | None:
    """The copy on another node that keeps running until the workload runs on its assigned node."""
    if not situation.copies:
        return None
    return next((copy for copy in situation.copies if copy.kept is not None), None)


def is_finished(situation: Situation) -> bool:
    """Whether the workload ran to completion at this revision. One that runs once may also have failed."""
    workload_status, workload = situation.workload_status, situation.workload
    if (
        workload.desired is not Desired.RUNNING
        or workload_status is None
        or workload_status.revision != workload.revision
    ):
        return False
    if workload_status.code == COMPLETED:
        return True
    failure, retry = workload_status.failure, situation.retry
    gave_up = retry is not None and retry.next_at is None and retry.revision == workload.revision
    return (
        workload.runs_once
        and workload_status.status is Status.FAILED
        and (gave_up or (failure is not None and not failure.retryable))
    )


def has_ended(situation: Situation) -> bool:
    """Whether a workload that runs once has ended: it exited, or it was stopped."""
    status, workload = situation.workload_status, situation.workload
    if not workload.runs_once or status is None:
        return False
    return is_finished(situation) or (
        workload.desired is Desired.STOPPED and satisfies(status, workload)
    )


def was_accepted(situation: Situation) -> bool:
    """Whether its node has accepted it for this assignment, so that it may have started.

    The status of an accepted workload has metadata, that of a refused order has none.
    """
    status, dispatch, bound = situation.workload_status, situation.dispatch, situation.assignment
    assert bound is not None
    known = (situation.workload.revision, bound.epoch)
    if status is not None and (status.revision, status.epoch) == known and status.metadata:
        return True
    return (
        dispatch is not None
        and (dispatch.goal.revision, dispatch.goal.epoch) == known
        and dispatch.answered_at is not None
        and not dispatch.refused
    )


def has_converged(situation: Situation) -> bool:
    """Whether the stored status matches the intent: without a new observation nothing has to be done."""
    workload_status, assignment = situation.workload_status, situation.assignment
    assert assignment is not None
    return (
        workload_status is not None
        and workload_status.epoch == assignment.epoch
        and satisfies(workload_status, situation.workload)
    )


def had_converged(situation: Situation) -> bool:
    """Whether the workload had converged, also if its node now reports another state."""
    workload_status, assignment = situation.workload_status, situation.assignment
    assert assignment is not None
    return has_converged(situation) or (
        workload_status is not None
        and workload_status.code == STATE_MISMATCH
        and workload_status.epoch == assignment.epoch
        and workload_status.revision == situation.workload.revision
    )


def satisfies(workload_status: WorkloadStatus, workload: Workload) -> bool:
    """Whether the status matches the desired state and revision."""
    if workload_status.revision != workload.revision:
        return False
    if workload.desired is Desired.RUNNING:
        return workload_status.status is Status.RUNNING or workload_status.code == COMPLETED
    return workload.desired is Desired.STOPPED and workload_status.status is Status.STOPPED


def confirms_status(
    seen: Observation, workload_status: WorkloadStatus, workload: Workload, assignment: Assignment
) -> bool:
    """Whether the observation matches the status and the intent: then there is nothing to decide."""
    return (
        seen.actual is Actual.RUNNING
        and workload_status.status is Status.RUNNING
        and workload.desired is Desired.RUNNING
        and seen.failure is None
        and not seen.metadata.get(DRIFT)
        and seen.metadata.get(HEALTH) == workload_status.metadata.get(HEALTH)
        and not has_restarted(workload_status.metadata, seen.metadata)
        and not has_moved(workload_status.metadata, seen.metadata)
        and seen.revision == workload_status.revision == workload.revision
        and seen.epoch == workload_status.epoch == assignment.epoch
    )
