"""Decides the next action for one workload from its intent, assignment and observation.

`decide` is called when anything about a workload changes and when its `wake_at` is due. It compares the goal
(revision, desired state, epoch) with the newest observation. It returns the records to store, the effects to
perform and the time of the next call. The same situation always gives the same decision.

    deleted?  ── no copy can exist ──▶ forget          unassigned? ── fits ──▶ assign, Apply
       └─ copy may exist ──▶ Remove until gone            └─ fits nowhere ──▶ Pending, with the reason
    observed == goal ──▶ Running / Stopped             failed ──▶ wait, Apply again, or give up
    sent, goal not reached ──▶ wait for the deadline   not sent ──▶ Apply
    node lost or draining ──▶ assign elsewhere with the next epoch, tombstone for the old copy
    record older than the state of its node ──▶ a new epoch (`rollback.py`)
"""

from dataclasses import replace
from datetime import datetime, timedelta

from persys.core.agent.deviations import DRIFT, DRIFTED
from persys.core.agent.health import HEALTH, UNHEALTHY, Health
from persys.core.nodes import Phase
from persys.core.placement.requirements import requirements_of
from persys.core.reconcile.assign import (
    Misplaced,
    after_refusal,
    assign,
    misplaced,
    refused_as_full,
    refused_by_runtime,
    reservation_differs,
    resize,
)
from persys.core.reconcile.dispatch import Goal
from persys.core.reconcile.effects import Apply, Effect, FetchActions, PollStatus, Remove
from persys.core.reconcile.evacuate import (
    leave,
    must_leave,
    stopped_by_agent_at,
    stranded,
    was_never_accepted,
)
from persys.core.reconcile.failure import after_failed, before_retry, count_failure, removal_counted
from persys.core.reconcile.retry import GROWTHS_MAX, within_policy
from persys.core.reconcile.situation import (
    COMPLETED,
    STATE_MISMATCH,
    Decision,
    Placer,
    Policy,
    Situation,
    awaits_retry,
    current,
    due_at,
    had_converged,
    has_converged,
    is_about,
    is_after_dispatch,
    is_finished,
    next_status,
    overdue,
    retried,
)
from persys.core.recovery.rollback import explained, renewed
from persys.model.ids import NodeId
from persys.model.placement import Assignment, Tombstone
from persys.model.spec import ComposeSpec, ContainerSpec, VMSpec
from persys.model.status import Actual, Failure, FailureReason, Observation, Status, WorkloadStatus
from persys.model.workload import Desired, Workload


def send_or_wait(
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
    overdue_at = due_at(situation, dispatch, deadline)
    if now >= overdue_at:
        return (effect,), None
    if situation.reports:
        return (), overdue_at
    assert situation.assignment is not None
    ask = PollStatus(situation.assignment.node_id, situation.workload.id)
    # Heartbeats do not postpone the poll: some carry neither a revision nor an error.
    ask_at = (dispatch.asked_at or dispatch.sent_at) + policy.ask_interval
    return ((ask,), now + policy.ask_interval) if now >= ask_at else ((), ask_at)


REMOVAL_LONGEST_AFTER = timedelta(hours=1)
_SHOWN = {Actual.RUNNING: Status.RUNNING, Actual.STOPPED: Status.STOPPED}


def decide(
    situation: Situation, placer: Placer, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    if (behind := renewed(situation, placer, now)) is not None:
        return behind
    if situation.workload.desired is Desired.DELETED:
        return _delete(situation, policy, now)
    situation = explained(situation)
    if situation.retry is not None and situation.retry.revision != situation.workload.revision:
        situation = replace(situation, retry=None)
    if situation.retry is not None:
        situation = replace(situation, retry=within_policy(situation.retry, policy.retry, now=now))
    if situation.assignment is None:
        return assign(situation, placer, now)
    if refused_by_runtime(situation) or refused_as_full(situation):
        return after_refusal(situation, placer, now)
    if must_leave(situation, now):
        return _leave(situation, placer, policy, now=now, roll=roll)
    if was_never_accepted(situation) and (moved := leave(situation, placer, now)) is not None:
        return moved
    return _stay(situation, placer, policy, now=now, roll=roll)


def _stay(
    situation: Situation, placer: Placer, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    """Converge on the current node. Resources are reserved before an order is sent."""
    assert situation.assignment is not None
    needs = requirements_of(situation.workload)
    if reservation_differs(situation.assignment, needs):
        resized = resize(situation, needs, placer, now=now)
        if isinstance(resized, Decision):
            return resized
        if isinstance(resized, Misplaced):
            here = _converge(situation, policy, now=now, roll=roll)
            return misplaced(situation, here, resized.why, now)
        situation = replace(situation, assignment=resized)
    return _converge(situation, policy, now=now, roll=roll)


def _leave(
    situation: Situation, placer: Placer, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    here = _converge(situation, policy, now=now, roll=roll)
    done = replace(situation, workload_status=here.workload_status)
    # A workload that has just run to completion is not run again on another node.
    left = leave(done if is_finished(done) else situation, placer, now)
    if left is not None:
        return left
    if situation.phase is Phase.LOST:
        return stranded(situation, placer, now)
    stayed = _stay(situation, placer, policy, now=now, roll=roll)
    return replace(stayed, waits_for_room=True)


def _delete(situation: Situation, policy: Policy, now: datetime) -> Decision:
    workload, assignment = situation.workload, situation.assignment
    if assignment is None:
        return Decision(None, None, None, forget=True)
    goal = Goal(workload.revision, Desired.DELETED, assignment.epoch)
    if _is_gone(situation, goal):
        return Decision(None, None, None, forget=True)
    if situation.phase is Phase.LOST:
        tombstone = Tombstone(assignment, now, stops_at=stopped_by_agent_at(situation, now))
        return Decision(None, None, None, forget=True, tombstone=tombstone)
    alive = situation.phase is Phase.ALIVE
    deadline = _delete_deadline(situation, policy)
    late = alive and overdue(situation, goal, deadline, now)
    if late:
        # A removal is never given up: it is sent again below, with the deadline doubled each time.
        situation = replace(situation, retry=removal_counted(situation, now))
    code, message = _removal_progress(situation, goal, policy)
    workload_status = next_status(situation, Status.DELETING, now, code=code, message=message)
    removal = Remove(assignment.node_id, workload.id, assignment.epoch)
    is_first = situation.dispatch is not None and not situation.dispatch.repeats
    if alive and not late and is_first and _has_lost_order(situation, goal, policy, now):
        return Decision(assignment, workload_status, situation.retry, effects=(removal,))
    effects, wake_at = send_or_wait(situation, goal, removal, policy, deadline=deadline, now=now)
    if late:
        effects = (
            FetchActions(assignment.node_id, workload.id, assignment.epoch, message),
            *effects,
        )
    return Decision(assignment, workload_status, situation.retry, effects=effects, wake_at=wake_at)


def _removal_progress(situation: Situation, goal: Goal, policy: Policy) -> tuple[str, str]:
    """The code and message of a removal in progress."""
    assert situation.assignment is not None
    if situation.phase is Phase.SUSPECT:
        node_id = situation.assignment.node_id
        return (
            "Deleting",
            f"node {node_id} is not sending heartbeats; deleted when it returns or is lost",
        )
    dispatch = situation.dispatch
    if dispatch is not None and dispatch.goal == goal and dispatch.problem:
        return _unreachable(situation.assignment.node_id, dispatch.problem)
    failed = current(situation, Actual.FAILED)
    if failed is not None and failed.message:
        return "Deleting", failed.message
    if situation.retry is not None:
        seconds = policy.delete_deadline.total_seconds()
        times = f"{situation.retry.attempts} times" if situation.retry.attempts > 1 else "once"
        text = f"not removed {seconds:g}s after the request was sent, {times}; sent again"
        return "TimedOut", text + _still_there(situation)
    return "Deleting", "waiting for the node to confirm the removal"


def _still_there(situation: Situation) -> str:
    """What the node reports about a copy that should be removed."""
    seen, assignment = situation.observation, situation.assignment
    if seen is None or assignment is None or seen.actual is Actual.ABSENT:
        return ""
    said = f": {seen.message}" if seen.message else ""
    return f"; node {assignment.node_id} reports {seen.actual.capitalize()}{said}"


def _delete_deadline(situation: Situation, policy: Policy) -> timedelta:
    """How long a removal may take before it is sent again; doubled after each time-out."""
    attempts = situation.retry.attempts if situation.retry is not None else 0
    growth: int = 2 ** min(attempts, GROWTHS_MAX)
    return max(min(policy.delete_deadline * growth, REMOVAL_LONGEST_AFTER), policy.delete_deadline)


def _is_gone(situation: Situation, goal: Goal) -> bool:
    """Whether the copy is removed for good.

    Absence alone is not enough: an earlier apply may still be in flight. The removal fences it.
    """
    seen, dispatch = situation.observation, situation.dispatch
    return (
        seen is not None
        and seen.actual is Actual.ABSENT
        and dispatch is not None
        and dispatch.goal == goal
        and dispatch.answered_at is not None
        and is_after_dispatch(situation, seen)
    )


def _converge(situation: Situation, policy: Policy, *, now: datetime, roll: float) -> Decision:
    workload, assignment = situation.workload, situation.assignment
    assert assignment is not None
    if situation.phase is not Phase.ALIVE:
        return _out_of_sight(situation, now)
    seen = situation.observation
    if seen is not None and _matches(seen, workload, assignment) and _is_current(situation, seen):
        return _settled(situation, seen, policy, now)
    failed = current(situation, Actual.FAILED)
    if failed is not None:
        return after_failed(situation, failed, policy, now=now, roll=roll)
    if seen is None and has_converged(situation):
        return Decision(assignment, situation.workload_status, situation.retry)
    return _pursue(situation, policy, now=now, roll=roll)


def _out_of_sight(situation: Situation, now: datetime) -> Decision:
    assignment, wake_at = situation.assignment, None
    assert assignment is not None
    message = f"node {assignment.node_id} is not sending heartbeats"
    if situation.phase is Phase.LOST:
        wake_at = stopped_by_agent_at(situation, now)
        message = f"node {assignment.node_id} is lost and holds the workload's data"
        if wake_at is not None:
            seconds = situation.workload.stop_after_seconds
            message = (
                f"node {assignment.node_id} is lost; its agent stops the workload after {seconds}s without "
                "the scheduler, then it starts on another node, without its data"
            )
        else:
            message += "; it stays until the node returns or is confirmed dead"
    workload_status = next_status(
        situation, Status.UNKNOWN, now, code="NodeNotReady", message=message
    )
    return Decision(assignment, workload_status, situation.retry, wake_at=wake_at)


def _is_current(situation: Situation, seen: Observation) -> bool:
    """An observation without a revision may describe an earlier one, until the order was accepted."""
    dispatch = situation.dispatch
    if seen.revision or had_converged(situation):
        return True
    taken = dispatch is not None and dispatch.answered_at is not None
    return taken and is_after_dispatch(situation, seen)


def _matches(seen: Observation, workload: Workload, assignment: Assignment) -> bool:
    if not is_about(seen, workload.revision, assignment):
        return False
    match workload.desired, seen.actual:
        case (Desired.RUNNING, Actual.RUNNING) | (Desired.STOPPED, Actual.STOPPED):
            return True
        case Desired.RUNNING, Actual.STOPPED:
            return _completed(seen, workload)
        case _:
            return False


def _completed(seen: Observation, workload: Workload) -> bool:
    match workload.spec:
        case ContainerSpec() as spec:
            may_end = spec.restart.runs_to_completion
        case ComposeSpec():
            may_end = True  # the agent reports an end only if the restart policy of each service allows it
        case _:
            may_end = False
    return may_end and seen.metadata.get("container.exit_code") == "0"


def _settled(situation: Situation, seen: Observation, policy: Policy, now: datetime) -> Decision:
    status = Status.RUNNING if seen.actual is Actual.RUNNING else Status.STOPPED
    code = message = ""
    if status is Status.STOPPED and situation.workload.desired is Desired.RUNNING:
        code, message = COMPLETED, "ran to completion"
    elif status is Status.RUNNING and seen.metadata.get(HEALTH) == Health.UNHEALTHY:
        code, message = UNHEALTHY, seen.message
    elif status is Status.RUNNING and seen.metadata.get(DRIFT):
        code, message = DRIFTED, seen.metadata[DRIFT]
    workload_status = next_status(
        situation,
        status,
        now,
        code=code,
        message=message,
        revision=situation.workload.revision,
        metadata=seen.metadata,
    )
    retry, wake_at = situation.retry, None
    if retry is not None:
        stable_at = workload_status.changed_at + policy.retry.stable_after
        retry, wake_at = (None, None) if now >= stable_at else (retry, stable_at)
    return Decision(situation.assignment, workload_status, retry, wake_at=wake_at, fulfilled=True)


def _pursue(situation: Situation, policy: Policy, *, now: datetime, roll: float) -> Decision:
    """The goal is not reached and the workload has not failed: send the order, or wait for the last one."""
    workload, assignment = situation.workload, situation.assignment
    assert assignment is not None
    retry = situation.retry
    if retry is not None and (retry.next_at is None or awaits_retry(situation, retry, now)):
        return before_retry(situation, retry, now)
    goal = Goal(workload.revision, workload.desired, assignment.epoch)
    if _is_blind(situation, goal):
        return Decision(assignment, _in_progress(situation, goal, now), retry)
    seen, since = situation.observation, situation.observed_since
    # The agent repairs a workload that it had converged before; it gets some time before the next order.
    if seen is not None and situation.dispatch is None and since is not None:
        healed_at = since + policy.missing_grace
        if had_converged(situation) and now < healed_at:
            return Decision(assignment, _reported(situation, seen, now), retry, wake_at=healed_at)
    if _has_lost_order(situation, goal, policy, now):
        return _after_lost_order(situation, goal, policy, now=now, roll=roll)
    deadline = _apply_deadline(workload, policy)
    if overdue(situation, goal, deadline, now):
        text = f"not {workload.desired} {deadline.total_seconds():g}s after the order was sent"
        failure = Failure(FailureReason.RUNTIME_ERROR, text, code="TimedOut")
        counted = count_failure(situation, failure, policy, now=now, roll=roll)
        inquiry = FetchActions(assignment.node_id, workload.id, assignment.epoch, text)
        return replace(counted, effects=(*counted.effects, inquiry))
    effects, wake_at = send_or_wait(
        situation,
        goal,
        Apply(assignment.node_id, workload, assignment.epoch),
        policy,
        deadline=deadline,
        now=now,
    )
    workload_status = _in_progress(situation, goal, now)
    return Decision(assignment, workload_status, retry, effects=effects, wake_at=wake_at)


def _has_lost_order(situation: Situation, goal: Goal, policy: Policy, now: datetime) -> bool:
    """The node accepted the order, but has no task for it and, after an apply, no workload.

    A third-party agent that is killed loses its unfinished orders. Our agent stores orders on disk.
    """
    dispatch, since = situation.dispatch, situation.observed_since
    if situation.reports or dispatch is None or dispatch.goal != goal:
        return False
    if dispatch.answered_at is None or dispatch.refused:
        return False
    if dispatch.lost:
        return now >= dispatch.sent_at + policy.missing_grace
    is_absent = goal.desired is not Desired.DELETED and current(situation, Actual.ABSENT)
    return bool(is_absent) and now >= max(since or now, dispatch.sent_at) + policy.missing_grace


def _after_lost_order(
    situation: Situation, goal: Goal, policy: Policy, *, now: datetime, roll: float
) -> Decision:
    """Send the order again at once. If it is lost again, count a failure."""
    workload, assignment = situation.workload, situation.assignment
    dispatch, retry = situation.dispatch, situation.retry
    assert assignment is not None
    assert dispatch is not None
    if not dispatch.repeats or (retry is not None and not retried(situation, retry)):
        workload_status = _in_progress(situation, goal, now)
        effect = Apply(assignment.node_id, workload, assignment.epoch)
        return Decision(assignment, workload_status, retry, effects=(effect,))
    text = (
        f"node {assignment.node_id} accepted the order, but has neither a result nor a task for it"
    )
    failure = Failure(FailureReason.RUNTIME_ERROR, text, code="OrderLost")
    return count_failure(situation, failure, policy, now=now, roll=roll)


def _reported(situation: Situation, seen: Observation, now: datetime) -> WorkloadStatus | None:
    """The status of a workload in another state than desired, until the agent repairs it."""
    workload, shown = situation.workload, _SHOWN.get(seen.actual)
    if shown is None or seen.revision not in ("", workload.revision):
        return situation.workload_status
    text = (
        f"desired state is {workload.desired.capitalize()}, but node {seen.node_id} reports {shown}"
    )
    return next_status(situation, shown, now, code=STATE_MISMATCH, message=text)


def _is_blind(situation: Situation, goal: Goal) -> bool:
    """The node has the order and cannot read its runtime. No deadline runs until it reports again."""
    dispatch = situation.dispatch
    has_order = has_converged(situation) if dispatch is None else dispatch.goal == goal
    return situation.reports and has_order and current(situation, Actual.UNKNOWN) is not None


def _in_progress(situation: Situation, goal: Goal, now: datetime) -> WorkloadStatus:
    status, code, message = _progress(situation, goal)
    return next_status(situation, status, now, code=code, message=message)


def _progress(situation: Situation, goal: Goal) -> tuple[Status, str, str]:
    assert situation.assignment is not None
    node_id, dispatch, seen = (
        situation.assignment.node_id,
        situation.dispatch,
        situation.observation,
    )
    if dispatch is not None and dispatch.goal == goal and dispatch.problem:
        return Status.PENDING, *_unreachable(node_id, dispatch.problem)
    if seen is not None and seen.actual is Actual.UNKNOWN:
        return Status.UNKNOWN, "Unknown", seen.message or f"node {node_id} cannot read the state"
    verb = "starting" if goal.desired is Desired.RUNNING else "stopping"
    return Status.PENDING, verb.capitalize(), f"{verb} on {node_id}"


def _unreachable(node_id: NodeId, problem: str) -> tuple[str, str]:
    return "NodeUnreachable", f"node {node_id} does not respond: {problem}"


def _apply_deadline(workload: Workload, policy: Policy) -> timedelta:
    return policy.vm_apply_deadline if isinstance(workload.spec, VMSpec) else policy.apply_deadline
