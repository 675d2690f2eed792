"""The scheduler's one brain: from what is wanted, bound and observed to the next deed.

`decide` is called whenever anything about a workload changes or a time it asked for has come. It compares
the goal (revision, desired state, epoch) with the newest observation and returns at most one deed, what to
believe and show, and when to look again. Calling it twice with the same situation gives the same answer.

    deleted?  ── no copy can exist ──▶ forget          unassigned? ── fits ──▶ assign, Apply
       └─ copy may exist ──▶ Remove until gone            └─ fits nowhere ──▶ Pending, says why
    observed == goal ──▶ Running / Stopped             failed ──▶ wait, Apply again, or give up
    sent, not yet so ──▶ wait until the deadline       not sent ──▶ Apply
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from persys.core.dispatch import Dispatch, Goal
from persys.core.effects import Apply, Ask, Effect, Remove
from persys.core.liveness import Phase
from persys.core.placement.filters import Rejection
from persys.core.placement.needs import Needs, holds_data, needs_of
from persys.core.placement.select import Placed, Unplaceable
from persys.core.retry import RetryPolicy, after_failure
from persys.model.assignment import Assignment, Tombstone
from persys.model.belief import Belief, Retry, Status
from persys.model.failure import Failure, FailureReason
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.observation import Actual, Observation
from persys.model.spec import ContainerSpec, VMSpec
from persys.model.workload import Desired, Workload

COMPLETED = "Completed"
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
    """Placement as `decide` needs it: where a need fits, and whether one node could take it."""

    def __init__(
        self,
        place: Callable[[Needs], Placed | Unplaceable],
        fits_on: Callable[[WorkloadId, NodeId, Needs], Rejection | None],
    ) -> None:
        self.place = place
        self.fits_on = fits_on


def decide(
    situation: Situation, rooms: Rooms, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    if situation.workload.desired is Desired.DELETED:
        return _delete(situation, policy, now)
    if situation.retry is not None and situation.retry.revision != situation.workload.revision:
        situation = replace(situation, retry=None)
    if situation.assignment is None:
        return _assign(situation, rooms, now)
    if _refused_by_runtime(situation):
        return _assign(situation, rooms, now)
    needs = needs_of(situation.workload)
    if _reservation_differs(situation.assignment, needs):
        return _resize(situation, needs, rooms, policy, now=now, roll=roll)
    return _converge(situation, policy, now=now, roll=roll)


# ---- deletion


def _delete(situation: Situation, policy: Policy, now: datetime) -> Decision:
    workload, assignment = situation.workload, situation.assignment
    if assignment is None or _is_gone(situation):
        return Decision(None, None, None, forget=True)
    if situation.phase is Phase.LOST:
        return Decision(None, None, None, forget=True, tombstone=Tombstone(assignment, now))
    message = "waiting for the node to say it is gone"
    failed = _current(situation, Actual.FAILED)
    if failed is not None and failed.message:
        message = failed.message
    if situation.phase is Phase.SUSPECT:
        message = f"node {assignment.node_id} gives no sign; deleted when it returns or is lost"
    belief = _belief(situation, Status.DELETING, now, code="Deleting", message=message)
    goal = Goal(workload.revision, Desired.DELETED, assignment.epoch)
    effects, wake_at = _send_or_wait(
        situation,
        goal,
        Remove(assignment.node_id, workload.id, assignment.epoch),
        policy,
        deadline=policy.delete_deadline,
        now=now,
    )
    return Decision(assignment, belief, situation.retry, effects=effects, wake_at=wake_at)


def _is_gone(situation: Situation) -> bool:
    seen = situation.observation
    return seen is not None and seen.actual is Actual.ABSENT and _after_sending(situation, seen)


# ---- placement


def _assign(situation: Situation, rooms: Rooms, now: datetime) -> Decision:
    workload = situation.workload
    if workload.desired is Desired.STOPPED:
        belief = _belief(
            situation, Status.STOPPED, now, code="NotPlaced", message="gets a node when started"
        )
        return Decision(None, belief, None)
    needs = needs_of(workload)
    match rooms.place(needs):
        case Placed(node_id=node_id, why=why):
            assignment = _assignment(situation, node_id, needs, why, now)
            belief = _belief(
                situation,
                Status.PENDING,
                now,
                code="Placed",
                message=f"sent to {node_id}",
                epoch=assignment.epoch,
            )
            effect = Apply(node_id, workload, assignment.epoch)
            return Decision(assignment, belief, situation.retry, effects=(effect,))
        case Unplaceable() as nowhere:
            belief = _belief(
                situation,
                Status.PENDING,
                now,
                code="Unplaceable",
                message=nowhere.explain(),
                failure=Failure(FailureReason.INSUFFICIENT_RESOURCES, nowhere.explain()),
            )
            return Decision(None, belief, situation.retry, waits_for_room=True)


def _assignment(
    situation: Situation, node_id: NodeId, needs: Needs, why: str, now: datetime
) -> Assignment:
    epoch = max(
        situation.assignment.epoch if situation.assignment else 0,
        situation.belief.epoch if situation.belief else 0,
    )
    return Assignment(
        situation.workload.id,
        node_id,
        epoch + 1,
        now,
        reserved=needs.resources,
        host_ports=needs.host_ports,
        why=why,
    )


def _refused_by_runtime(situation: Situation) -> bool:
    """The node turned out not to run this type, so nothing of the workload is there."""
    failed = _current(situation, Actual.FAILED)
    return (
        failed is not None
        and failed.failure is not None
        and failed.failure.code == RUNTIME_NOT_AVAILABLE
    )


def _reservation_differs(assignment: Assignment, needs: Needs) -> bool:
    return assignment.reserved != needs.resources or assignment.host_ports != needs.host_ports


def _resize(
    situation: Situation,
    needs: Needs,
    rooms: Rooms,
    policy: Policy,
    *,
    now: datetime,
    roll: float,
) -> Decision:
    """A new revision needs another amount: here if it fits, elsewhere if it may move."""
    assignment = situation.assignment
    assert assignment is not None
    if situation.phase is not Phase.ALIVE:
        return _converge(situation, policy, now=now, roll=roll)
    rejection = rooms.fits_on(assignment.workload_id, assignment.node_id, needs)
    if rejection is None:
        resized = _resized(assignment, needs)
        return _converge(replace(situation, assignment=resized), policy, now=now, roll=roll)
    if not holds_data(situation.workload):
        moved = _assign(situation, rooms, now)
        if moved.assignment is not None:
            old = Tombstone(assignment, now)
            return replace(moved, tombstone=old)
    message = f"node {assignment.node_id} {rejection.detail} for this revision"
    belief = _belief(
        situation,
        Status.PENDING,
        now,
        code="Unplaceable",
        message=message,
        failure=Failure(FailureReason.INSUFFICIENT_RESOURCES, message),
    )
    return Decision(assignment, belief, situation.retry, waits_for_room=True)


def _resized(assignment: Assignment, needs: Needs) -> Assignment:
    return Assignment(
        assignment.workload_id,
        assignment.node_id,
        assignment.epoch,
        assignment.assigned_at,
        reserved=needs.resources,
        host_ports=needs.host_ports,
        why=assignment.why,
    )


# ---- convergence


def _converge(situation: Situation, policy: Policy, *, now: datetime, roll: float) -> Decision:
    workload, assignment = situation.workload, situation.assignment
    assert assignment is not None
    if situation.phase is not Phase.ALIVE:
        message = f"node {assignment.node_id} gives no sign"
        belief = _belief(situation, Status.UNKNOWN, now, code="NodeNotReady", message=message)
        return Decision(assignment, belief, situation.retry)
    seen = situation.observation
    if seen is not None and _matches(seen, workload, assignment):
        return _settled(situation, seen, policy, now)
    failed = _current(situation, Actual.FAILED)
    if failed is not None:
        return _failed(situation, failed, policy, now=now, roll=roll)
    if seen is None and _was_settled(situation):
        return Decision(assignment, situation.belief, situation.retry)
    return _pursue(situation, policy, now=now, roll=roll)


def _matches(seen: Observation, workload: Workload, assignment: Assignment) -> bool:
    if not _speaks_of(seen, workload.revision, assignment):
        return False
    match workload.desired, seen.actual:
        case (Desired.RUNNING, Actual.RUNNING) | (Desired.STOPPED, Actual.STOPPED):
            return True
        case Desired.RUNNING, Actual.STOPPED:
            return _completed(seen, workload)
        case _:
            return False


def _completed(seen: Observation, workload: Workload) -> bool:
    return (
        isinstance(workload.spec, ContainerSpec)
        and workload.spec.restart.runs_to_completion
        and seen.metadata.get("container.exit_code") == "0"
    )


def _speaks_of(seen: Observation, revision: Revision, assignment: Assignment) -> bool:
    """Whether it is about this assignment; an agent that does not say is taken at its word."""
    return (
        seen.node_id == assignment.node_id
        and seen.revision in ("", revision)
        and seen.epoch in (0, assignment.epoch)
    )


def _settled(situation: Situation, seen: Observation, policy: Policy, now: datetime) -> Decision:
    status = Status.RUNNING if seen.actual is Actual.RUNNING else Status.STOPPED
    done = status is Status.STOPPED and situation.workload.desired is Desired.RUNNING
    belief = _belief(
        situation,
        status,
        now,
        code=COMPLETED if done else "",
        message="ran to completion" if done else "",
        revision=situation.workload.revision,
        metadata=seen.metadata,
    )
    retry, wake_at = situation.retry, None
    if retry is not None:
        stable_at = belief.changed_at + policy.retry.stable_after
        retry, wake_at = (None, None) if now >= stable_at else (retry, stable_at)
    return Decision(situation.assignment, belief, retry, wake_at=wake_at, fulfilled=True)


def _was_settled(situation: Situation) -> bool:
    """As far as is recorded, all is well: no news is no reason to act."""
    belief, workload, assignment = situation.belief, situation.workload, situation.assignment
    assert assignment is not None
    if belief is None or belief.revision != workload.revision or belief.epoch != assignment.epoch:
        return False
    if workload.desired is Desired.RUNNING:
        return belief.status is Status.RUNNING or belief.code == COMPLETED
    return belief.status is Status.STOPPED


def _pursue(situation: Situation, policy: Policy, *, now: datetime, roll: float) -> Decision:
    """Not yet so, and not failed: send, or wait for what was sent."""
    workload, assignment = situation.workload, situation.assignment
    assert assignment is not None
    retry = situation.retry
    if retry is not None and retry.next_at is None:
        return Decision(assignment, situation.belief, retry)
    if retry is not None and _awaits_retry(situation, retry, now):
        return Decision(assignment, situation.belief, retry, wake_at=retry.next_at)
    seen, since = situation.observation, situation.observed_since
    # The agent heals by itself what it once had; it gets a while before it is told again.
    if seen is not None and situation.dispatch is None and since is not None:
        healed_at = since + policy.missing_grace
        if _was_settled(situation) and now < healed_at:
            return Decision(assignment, situation.belief, retry, wake_at=healed_at)
    goal = Goal(workload.revision, workload.desired, assignment.epoch)
    deadline = _apply_deadline(workload, policy)
    if _overdue(situation, goal, deadline, now):
        text = f"not {workload.desired} {deadline.total_seconds():g}s after it was sent"
        failure = Failure(FailureReason.RUNTIME_ERROR, text, code="TimedOut")
        return _count_failure(situation, failure, policy, now=now, roll=roll)
    effects, wake_at = _send_or_wait(
        situation,
        goal,
        Apply(assignment.node_id, workload, assignment.epoch),
        policy,
        deadline=deadline,
        now=now,
    )
    status, code, message = _progress(situation, goal)
    belief = _belief(situation, status, now, code=code, message=message)
    return Decision(assignment, belief, retry, effects=effects, wake_at=wake_at)


def _progress(situation: Situation, goal: Goal) -> tuple[Status, str, str]:
    assert situation.assignment is not None
    node_id, dispatch, seen = (
        situation.assignment.node_id,
        situation.dispatch,
        situation.observation,
    )
    if dispatch is not None and dispatch.goal == goal and dispatch.problem:
        return (
            Status.PENDING,
            "NodeUnreachable",
            f"node {node_id} gives no answer: {dispatch.problem}",
        )
    if seen is not None and seen.actual is Actual.UNKNOWN:
        return Status.UNKNOWN, "Unknown", seen.message or f"node {node_id} cannot tell"
    verb = "starting" if goal.desired is Desired.RUNNING else "stopping"
    return Status.PENDING, verb.capitalize(), f"{verb} on {node_id}"


def _send_or_wait(
    situation: Situation,
    goal: Goal,
    effect: Effect,
    policy: Policy,
    *,
    deadline: timedelta,
    now: datetime,
) -> tuple[tuple[Effect, ...], datetime | None]:
    dispatch = situation.dispatch
    if situation.phase is not Phase.ALIVE:
        return (), None
    if dispatch is None or dispatch.goal != goal:
        return (effect,), None
    if dispatch.in_flight:
        return (), None
    if dispatch.again_at is not None:
        return ((effect,), None) if now >= dispatch.again_at else ((), dispatch.again_at)
    overdue_at = dispatch.sent_at + deadline
    if now >= overdue_at:
        return (effect,), None
    if situation.reports:
        return (), overdue_at
    assert situation.assignment is not None
    ask = Ask(situation.assignment.node_id, situation.workload.id)
    seen = situation.observation
    asked_at = seen.seen_at if seen is not None else dispatch.sent_at
    ask_at = max(asked_at, dispatch.sent_at) + policy.ask_interval
    return ((ask,), now + policy.ask_interval) if now >= ask_at else ((), ask_at)


# ---- failure


def _failed(
    situation: Situation, seen: Observation, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    failure = seen.failure or Failure(FailureReason.RUNTIME_ERROR, seen.message)
    retry = situation.retry
    if retry is None:
        return _count_failure(situation, failure, policy, now=now, roll=roll)
    if retry.next_at is None:
        return _given_up(situation, failure, retry, now)
    if not _retried(situation, retry):
        return _wait_or_retry(situation, failure, retry, now)
    return _count_failure(situation, failure, policy, now=now, roll=roll)


def _count_failure(
    situation: Situation, failure: Failure, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    retry = after_failure(
        situation.workload.id,
        situation.workload.revision,
        failure,
        attempts=situation.retry.attempts if situation.retry else 0,
        policy=policy.retry,
        now=now,
        roll=roll,
    )
    if retry.next_at is None:
        return _given_up(situation, failure, retry, now)
    return Decision(
        situation.assignment, _failure_belief(situation, failure, now), retry, wake_at=retry.next_at
    )


def _wait_or_retry(situation: Situation, failure: Failure, retry: Retry, now: datetime) -> Decision:
    assert situation.assignment is not None
    assert retry.next_at is not None
    belief = _failure_belief(situation, failure, now)
    if now < retry.next_at:
        return Decision(situation.assignment, belief, retry, wake_at=retry.next_at)
    if situation.dispatch is not None and situation.dispatch.in_flight:
        return Decision(situation.assignment, belief, retry)
    effect = Apply(situation.assignment.node_id, situation.workload, situation.assignment.epoch)
    return Decision(situation.assignment, belief, retry, effects=(effect,))


def _given_up(situation: Situation, failure: Failure, retry: Retry, now: datetime) -> Decision:
    return Decision(situation.assignment, _failure_belief(situation, failure, now), retry)


def _failure_belief(situation: Situation, failure: Failure, now: datetime) -> Belief:
    return _belief(
        situation,
        Status.FAILED,
        now,
        code=failure.code or failure.reason,
        message=failure.message,
        failure=failure,
        revision=situation.workload.revision,
        metadata=situation.observation.metadata if situation.observation else {},
    )


# ---- what was seen and sent


def _current(situation: Situation, actual: Actual) -> Observation | None:
    """The observation, if it says `actual` of this assignment and is newer than what was sent."""
    seen = situation.observation
    if (
        seen is None
        or situation.assignment is None
        or seen.actual is not actual
        or not _speaks_of(seen, situation.workload.revision, situation.assignment)
        or not _after_sending(situation, seen)
    ):
        return None
    return seen


def _after_sending(situation: Situation, seen: Observation) -> bool:
    dispatch = situation.dispatch
    if dispatch is None:
        return True
    return not dispatch.in_flight and seen.seen_at >= dispatch.sent_at


def _awaits_retry(situation: Situation, retry: Retry, now: datetime) -> bool:
    return retry.next_at is not None and not _retried(situation, retry) and now < retry.next_at


def _retried(situation: Situation, retry: Retry) -> bool:
    """Whether the planned attempt has been sent."""
    dispatch = situation.dispatch
    return dispatch is not None and retry.next_at is not None and dispatch.sent_at >= retry.next_at


def _overdue(situation: Situation, goal: Goal, deadline: timedelta, now: datetime) -> bool:
    """What was sent has not come about in time, and that has not been counted yet."""
    dispatch, retry = situation.dispatch, situation.retry
    return (
        dispatch is not None
        and dispatch.goal == goal
        and dispatch.answered_at is not None
        and now >= dispatch.sent_at + deadline
        and (retry is None or _retried(situation, retry))
    )


def _apply_deadline(workload: Workload, policy: Policy) -> timedelta:
    return policy.vm_apply_deadline if isinstance(workload.spec, VMSpec) else policy.apply_deadline


def _belief(
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
