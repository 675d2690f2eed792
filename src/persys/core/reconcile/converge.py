"""Rules for a workload that stays on its node. They compare the newest observation with the goal.

    observed == goal ──▶ converged                 failed ──▶ count it, retry when due, or give up
    no order sent ──▶ send it                      sent, goal not reached ──▶ wait for the deadline

An order is sent only after its resources are reserved.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import structs

from persys.core.agent.deviations import DRIFT, DRIFTED
from persys.core.agent.health import HEALTH, UNHEALTHY, Health
from persys.core.agent.report import EXIT_CODE, is_healthy
from persys.core.agent.run_limits import INTERRUPTED
from persys.core.nodes import Phase
from persys.core.placement.requirements import holds_data, requirements_of
from persys.core.reconcile.assign import (
    Misplaced,
    misplaced,
    old_copies,
    refused_as_full,
    reservation_differs,
    resize,
    wait,
)
from persys.core.reconcile.dispatch import Goal
from persys.core.reconcile.effects import Apply, Effect, FetchActions, PollStatus
from persys.core.reconcile.evacuate import stopped_by_agent_at
from persys.core.reconcile.failure import (
    before_retry,
    count_failure,
    given_up,
    new_failure,
    retry_due,
    retry_waiting,
)
from persys.core.reconcile.situation import (
    COMPLETED,
    STATE_MISMATCH,
    Case,
    Decision,
    Policy,
    Rule,
    Situation,
    awaits_retry,
    due_at,
    first_match,
    fresh_observation,
    had_converged,
    has_converged,
    has_ended,
    is_about,
    is_after_dispatch,
    is_finished,
    next_status,
    overdue,
    retried,
    was_accepted,
)
from persys.model.ids import NodeId
from persys.model.placement import Assignment
from persys.model.spec import ComposeSpec, ContainerSpec, VMSpec
from persys.model.status import Actual, Failure, FailureReason, Observation, Status, WorkloadStatus
from persys.model.workload import Desired, Workload

WAITS_FOR_OLD_COPY = "waits-for-old-copy"
_SHOWN = {Actual.RUNNING: Status.RUNNING, Actual.STOPPED: Status.STOPPED}


def stay(case: Case) -> Decision:
    """Converge on the current node, after its reservation is adjusted to changed requirements."""
    situation = case.situation
    assert situation.assignment is not None
    needs = requirements_of(situation.workload)
    if not has_ended(situation) and reservation_differs(situation.assignment, needs):
        resized = resize(situation, needs, case.placer, now=case.now)
        if isinstance(resized, Decision):
            return replace(resized, rule="resize")
        if isinstance(resized, Misplaced):
            here = misplaced(situation, converge(case), resized.why, case.now)
            return replace(here, rule="misplaced")
        case = case._replace(situation=replace(situation, assignment=resized))
    return converge(case)


def converge(case: Case) -> Decision:
    return first_match(CONVERGE_RULES, case)


def run_ended(case: Case) -> Decision | None:
    """It runs once and has ended: its result stays, whatever its node reports or if its node is lost."""
    situation = case.situation
    if not situation.workload.runs_once or not is_finished(situation):
        return None
    return Decision(
        situation.assignment, situation.workload_status, situation.retry, fulfilled=True
    )


def run_interrupted(case: Case) -> Decision | None:
    """It runs once, and its node has accepted it and lost it: it is not sent again.

    A report from before the order may arrive late, so the node gets some time.
    """
    situation, now = case.situation, case.now
    bound, dispatch = situation.assignment, situation.dispatch
    assert bound is not None
    if not situation.workload.runs_once or situation.workload.desired is not Desired.RUNNING:
        return None
    if not was_accepted(situation):
        return None
    if fresh_observation(situation, Actual.ABSENT) is not None:
        since = max(
            situation.observed_since or now, dispatch.sent_at if dispatch else bound.assigned_at
        )
        due = since + case.policy.missing_grace
        if now < due:
            return Decision(bound, situation.workload_status, situation.retry, wake_at=due)
    elif not refused_as_full(situation):  # as a new workload
        return None
    text = (
        f"interrupted: node {bound.node_id} does not have it any more, and its result is not known"
    )
    failure = Failure(FailureReason.RUNTIME_ERROR, text, retryable=False, code=INTERRUPTED)
    return count_failure(situation, failure, case.policy, now=now, roll=case.roll)


def node_unreachable(case: Case) -> Decision | None:
    """The node is suspect, or lost and the workload must stay assigned to it."""
    situation = case.situation
    assignment, wake_at = situation.assignment, None
    if situation.phase is Phase.ALIVE:
        return None
    assert assignment is not None
    message = f"node {assignment.node_id} is not sending heartbeats"
    if situation.workload.runs_once:
        message += "; it runs once, and is not moved"
    elif situation.phase is Phase.LOST:
        wake_at = stopped_by_agent_at(situation, case.now)
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
        situation, Status.UNKNOWN, case.now, code="NodeNotReady", message=message
    )
    return Decision(assignment, workload_status, situation.retry, wake_at=wake_at)


def converged(case: Case) -> Decision | None:
    """The observation matches the goal. A retry is reset when the workload has been stable."""
    situation, now = case.situation, case.now
    seen, assignment = situation.observation, situation.assignment
    assert assignment is not None
    if seen is None or not _matches(seen, situation.workload, assignment):
        return None
    if not _is_current(situation, seen):
        return None
    workload_status = _converged_status(situation, seen, now)
    retry, wake_at = situation.retry, None
    if retry is not None:
        stable_at = workload_status.changed_at + case.policy.retry.stable_after
        retry, wake_at = (None, None) if now >= stable_at else (retry, stable_at)
    return Decision(assignment, workload_status, retry, wake_at=wake_at, fulfilled=True)


def waits_for_old_copy(case: Case) -> Decision | None:
    """A new revision with data: copies of earlier revisions on other nodes may run with data too.

    It had no data when it was assigned, so it did not wait for them then.
    """
    situation, workload = case.situation, case.situation.workload
    old = [copy for copy in situation.copies if copy.may_run and copy.being_removed]
    old = [copy for copy in old if copy.kept is None]  # a kept copy waits for this one
    if not old or workload.desired is not Desired.RUNNING or not holds_data(workload):
        return None
    if _has_order(situation):
        return None
    return replace(wait(situation, old_copies(old), case.now), assignment=situation.assignment)


def _has_order(situation: Situation) -> bool:
    """Whether the order for this revision was sent."""
    dispatch, seen = situation.dispatch, situation.observation
    workload_status, assignment = situation.workload_status, situation.assignment
    assert assignment is not None
    if dispatch is not None and dispatch.goal == goal_of(situation):
        return True
    wanted = situation.workload.revision, assignment.epoch
    return (seen is not None and (seen.revision, seen.epoch) == wanted) or (
        workload_status is not None and (workload_status.revision, workload_status.epoch) == wanted
    )


def unchanged(case: Case) -> Decision | None:
    """No observation since the start of this process, and the stored status matches the intent."""
    situation = case.situation
    if situation.observation is not None or not has_converged(situation):
        return None
    return Decision(situation.assignment, situation.workload_status, situation.retry)


def retry_not_due(case: Case) -> Decision | None:
    """It failed before, and the next attempt is not due, or was given up."""
    situation, retry = case.situation, case.situation.retry
    if retry is None or not (retry.next_at is None or awaits_retry(situation, retry, case.now)):
        return None
    return before_retry(situation, retry, case.now)


def runtime_unreadable(case: Case) -> Decision | None:
    """The node has the order and cannot read its runtime. No deadline runs until it reports again."""
    situation, goal = case.situation, goal_of(case.situation)
    dispatch = situation.dispatch
    has_order = has_converged(situation) if dispatch is None else dispatch.goal == goal
    if (
        not situation.reports
        or not has_order
        or fresh_observation(situation, Actual.UNKNOWN) is None
    ):
        return None
    return Decision(situation.assignment, _in_progress(situation, goal, case.now), situation.retry)


def agent_repairs(case: Case) -> Decision | None:
    """The agent repairs a workload that had converged before; it gets some time before the next order."""
    situation, now = case.situation, case.now
    seen, since = situation.observation, situation.observed_since
    if seen is None or since is None or situation.dispatch is not None:
        return None
    healed_at = since + case.policy.missing_grace
    if not had_converged(situation) or now >= healed_at:
        return None
    workload_status = _reported(situation, seen, now)
    return Decision(situation.assignment, workload_status, situation.retry, wake_at=healed_at)


def order_lost(case: Case) -> Decision | None:
    """The node accepted the order but has no task for it: send it again once, then count a failure."""
    situation, goal, now = case.situation, goal_of(case.situation), case.now
    if not has_lost_order(situation, goal, case.policy, now):
        return None
    assignment, dispatch, retry = situation.assignment, situation.dispatch, situation.retry
    assert assignment is not None
    assert dispatch is not None
    if not dispatch.repeats or (retry is not None and not retried(situation, retry)):
        workload_status = _in_progress(situation, goal, now)
        effect = Apply(assignment.node_id, situation.workload, assignment.epoch)
        return Decision(assignment, workload_status, retry, effects=(effect,))
    text = (
        f"node {assignment.node_id} accepted the order, but has neither a result nor a task for it"
    )
    failure = Failure(FailureReason.RUNTIME_ERROR, text, code="OrderLost")
    return count_failure(situation, failure, case.policy, now=now, roll=case.roll)


def order_overdue(case: Case) -> Decision | None:
    """The order missed its deadline: count a failure and fetch the actions of the node."""
    situation, workload = case.situation, case.situation.workload
    deadline = _apply_deadline(workload, case.policy)
    if not overdue(situation, goal_of(situation), deadline, case.now):
        return None
    assert situation.assignment is not None
    text = f"not {workload.desired} {deadline.total_seconds():g}s after the order was sent"
    failure = Failure(FailureReason.RUNTIME_ERROR, text, code="TimedOut")
    counted = count_failure(situation, failure, case.policy, now=case.now, roll=case.roll)
    bound = situation.assignment
    inquiry = FetchActions(bound.node_id, workload.id, bound.epoch, text)
    return replace(counted, effects=(*counted.effects, inquiry))


def send_order(case: Case) -> Decision:
    """Send the order, poll the node, or wait for the result."""
    situation, goal = case.situation, goal_of(case.situation)
    assert situation.assignment is not None
    bound = situation.assignment
    effects, wake_at = send_or_wait(
        situation,
        goal,
        Apply(bound.node_id, situation.workload, bound.epoch),
        case.policy,
        deadline=_apply_deadline(situation.workload, case.policy),
        now=case.now,
    )
    workload_status = _in_progress(situation, goal, case.now)
    return Decision(bound, workload_status, situation.retry, effects=effects, wake_at=wake_at)


CONVERGE_RULES = (
    Rule("run-ended", run_ended),
    Rule("node-unreachable", node_unreachable),
    Rule("run-interrupted", run_interrupted),
    Rule("converged", converged),
    Rule(WAITS_FOR_OLD_COPY, waits_for_old_copy),
    Rule("failure-given-up", given_up),
    Rule("retry-waiting", retry_waiting),
    Rule("retry-due", retry_due),
    Rule("failure", new_failure),
    Rule("unchanged", unchanged),
    Rule("retry-not-due", retry_not_due),
    Rule("runtime-unreadable", runtime_unreadable),
    Rule("agent-repairs", agent_repairs),
    Rule("order-lost", order_lost),
    Rule("order-overdue", order_overdue),
    Rule("order-pending", send_order),
)


def goal_of(situation: Situation) -> Goal:
    assert situation.assignment is not None
    workload = situation.workload
    return Goal(workload.revision, workload.desired, situation.assignment.epoch)


def send_or_wait(
    situation: Situation,
    goal: Goal,
    effect: Effect,
    policy: Policy,
    *,
    deadline: timedelta,
    now: datetime,
) -> tuple[tuple[Effect, ...], datetime | None]:
    """The effects to perform now, and the time of the next call. Only this function paces orders."""
    dispatch = situation.dispatch
    if situation.phase is not Phase.ALIVE:
        return (), None
    if dispatch is None or dispatch.goal != goal:
        return (effect,), None
    if dispatch.in_flight:
        return (), None
    if dispatch.resend_at is not None:
        return ((effect,), None) if now >= dispatch.resend_at else ((), dispatch.resend_at)
    overdue_at = due_at(situation, dispatch, deadline)
    if now >= overdue_at:
        return (effect,), None
    if situation.reports:
        return (), overdue_at
    assert situation.assignment is not None
    poll = PollStatus(situation.assignment.node_id, situation.workload.id)
    # Heartbeats do not postpone the poll: some carry neither a revision nor an error.
    poll_at = (dispatch.polled_at or dispatch.sent_at) + policy.poll_interval
    return ((poll,), now + policy.poll_interval) if now >= poll_at else ((), poll_at)


def has_lost_order(situation: Situation, goal: Goal, policy: Policy, now: datetime) -> bool:
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
    is_absent = goal.desired is not Desired.DELETED and fresh_observation(situation, Actual.ABSENT)
    return bool(is_absent) and now >= max(since or now, dispatch.sent_at) + policy.missing_grace


def result_due(situation: Situation, policy: Policy) -> datetime | None:
    """The deadline of an order that its node has accepted and works on, as the status shows.

    Until then `decide` would change nothing, if the node is alive, reports changes and is not draining, and
    there are no copies on other nodes. None: it may change something.
    """
    workload, bound, dispatch = situation.workload, situation.assignment, situation.dispatch
    seen, status = situation.observation, situation.workload_status
    if bound is None or dispatch is None or seen is None or status is None:
        return None
    if workload.desired is Desired.DELETED or situation.retry is not None:
        return None
    if dispatch.answered_at is None or dispatch.refused or dispatch.goal != goal_of(situation):
        return None
    if seen.actual is not Actual.PENDING or seen.failure is not None:
        return None
    if (seen.node_id, seen.revision, seen.epoch) != (bound.node_id, workload.revision, bound.epoch):
        return None
    if (
        status.epoch != bound.epoch
        or status.failure is not None
        or status.healthy_since is not None
    ):
        return None
    if (status.status, status.code, status.message) != _progress(situation, dispatch.goal):
        return None
    return due_at(situation, dispatch, _apply_deadline(workload, policy))


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
    if workload.runs_once:
        return seen.metadata.get(EXIT_CODE) == "0"
    match workload.spec:
        case ContainerSpec() as spec:
            may_end = spec.restart.runs_to_completion
        case ComposeSpec():
            may_end = True  # the agent reports an end only if the restart policy of each service allows it
        case _:
            may_end = False
    return may_end and seen.metadata.get(EXIT_CODE) == "0"


def _converged_status(situation: Situation, seen: Observation, now: datetime) -> WorkloadStatus:
    status = Status.RUNNING if seen.actual is Actual.RUNNING else Status.STOPPED
    code = message = ""
    if status is Status.STOPPED and situation.workload.desired is Desired.RUNNING:
        code, message = COMPLETED, "ran to completion"
    elif status is Status.RUNNING and seen.metadata.get(HEALTH) == Health.UNHEALTHY:
        code, message = UNHEALTHY, seen.message
    elif status is Status.RUNNING and seen.metadata.get(DRIFT):
        code, message = DRIFTED, seen.metadata[DRIFT]
    return next_status(
        situation,
        status,
        now,
        code=code,
        message=message,
        revision=situation.workload.revision,
        metadata=seen.metadata,
        healthy=status is Status.RUNNING and is_healthy(seen.metadata),
    )


def _reported(situation: Situation, seen: Observation, now: datetime) -> WorkloadStatus | None:
    """The status of a workload in another state than desired, until the agent repairs it."""
    workload, shown = situation.workload, _SHOWN.get(seen.actual)
    if shown is None or seen.revision not in ("", workload.revision):
        old = situation.workload_status
        if old is None or old.healthy_since is None:
            return old
        return structs.replace(old, healthy_since=None)
    text = (
        f"desired state is {workload.desired.capitalize()}, but node {seen.node_id} reports {shown}"
    )
    return next_status(situation, shown, now, code=STATE_MISMATCH, message=text)


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
        return Status.PENDING, *unreachable(node_id, dispatch.problem)
    if seen is not None and seen.actual is Actual.UNKNOWN:
        return Status.UNKNOWN, "Unknown", seen.message or f"node {node_id} cannot read the state"
    verb = "starting" if goal.desired is Desired.RUNNING else "stopping"
    return Status.PENDING, verb.capitalize(), f"{verb} on {node_id}"


def unreachable(node_id: NodeId, problem: str) -> tuple[str, str]:
    return "NodeUnreachable", f"node {node_id} does not respond: {problem}"


def _apply_deadline(workload: Workload, policy: Policy) -> timedelta:
    return policy.vm_apply_deadline if isinstance(workload.spec, VMSpec) else policy.apply_deadline
