"""Rules for a workload that is being deleted: its copy is removed until no copy can exist."""

from dataclasses import replace
from datetime import datetime, timedelta

from persys.core.backoff import doubled
from persys.core.nodes import Phase
from persys.core.reconcile.converge import has_lost_order, send_or_wait, unreachable
from persys.core.reconcile.dispatch import Goal
from persys.core.reconcile.effects import FetchActions, Remove
from persys.core.reconcile.evacuate import stopped_by_agent_at
from persys.core.reconcile.failure import removal_counted
from persys.core.reconcile.situation import (
    Case,
    Decision,
    Policy,
    Situation,
    fresh_observation,
    is_after_dispatch,
    next_status,
    overdue,
)
from persys.model.placement import Tombstone
from persys.model.status import Actual, Status, WorkloadStatus
from persys.model.workload import Desired

REMOVAL_LONGEST_AFTER = timedelta(hours=1)
_FORGOTTEN = Decision(None, None, None, forget=True)


def never_assigned(case: Case) -> Decision | None:
    """No node has it: delete the records."""
    return _FORGOTTEN if case.situation.assignment is None else None


def confirmed_absent(case: Case) -> Decision | None:
    """Its node confirmed the removal: delete the records."""
    return _FORGOTTEN if _is_gone(case.situation, _goal(case.situation)) else None


def node_lost(case: Case) -> Decision | None:
    """Its node is lost: delete the records, with a tombstone in case the node returns."""
    situation, assignment = case.situation, case.situation.assignment
    if situation.phase is not Phase.LOST:
        return None
    assert assignment is not None
    tombstone = Tombstone(assignment, case.now, stops_at=stopped_by_agent_at(situation, case.now))
    return replace(_FORGOTTEN, tombstone=tombstone)


def removal_order_lost(case: Case) -> Decision | None:
    """The node accepted the removal but has no task for it: send it once more at once."""
    situation, dispatch = case.situation, case.situation.dispatch
    goal = _goal(situation)
    if dispatch is None or dispatch.repeats or situation.phase is not Phase.ALIVE:
        return None
    if not has_lost_order(situation, goal, case.policy, case.now):
        return None
    workload_status = _deleting(situation, goal, case.policy, case.now)
    return Decision(
        situation.assignment, workload_status, situation.retry, effects=(_removal(situation),)
    )


def removal_overdue(case: Case) -> Decision | None:
    """The removal missed its deadline: count it, fetch the actions of the node and send it again.

    A removal is never given up: the deadline is doubled each time.
    """
    situation, goal = case.situation, _goal(case.situation)
    if not _is_overdue(case, goal):
        return None
    situation = replace(situation, retry=removal_counted(situation, case.now))
    sent = _send_or_wait(case._replace(situation=situation), goal, _deadline(case))
    assert situation.assignment is not None
    assert sent.workload_status is not None
    bound = situation.assignment
    inquiry = FetchActions(
        bound.node_id, bound.workload_id, bound.epoch, sent.workload_status.message
    )
    return replace(sent, effects=(inquiry, *sent.effects))


def send_removal(case: Case) -> Decision:
    """Send the removal, or wait for its result."""
    return _send_or_wait(case, _goal(case.situation), _deadline(case))


def _goal(situation: Situation) -> Goal:
    assert situation.assignment is not None
    return Goal(situation.workload.revision, Desired.DELETED, situation.assignment.epoch)


def _removal(situation: Situation) -> Remove:
    assert situation.assignment is not None
    return Remove(situation.assignment.node_id, situation.workload.id, situation.assignment.epoch)


def _is_overdue(case: Case, goal: Goal) -> bool:
    alive = case.situation.phase is Phase.ALIVE
    return alive and overdue(case.situation, goal, _deadline(case), case.now)


def _deadline(case: Case) -> timedelta:
    """How long a removal may take before it is sent again; doubled after each time-out."""
    retry, first = case.situation.retry, case.policy.delete_deadline
    attempts = retry.attempts if retry is not None else 0
    return doubled(first, attempts, longest=max(first, REMOVAL_LONGEST_AFTER))


def _send_or_wait(case: Case, goal: Goal, deadline: timedelta) -> Decision:
    situation = case.situation
    effects, wake_at = send_or_wait(
        situation, goal, _removal(situation), case.policy, deadline=deadline, now=case.now
    )
    workload_status = _deleting(situation, goal, case.policy, case.now)
    return Decision(
        situation.assignment, workload_status, situation.retry, effects=effects, wake_at=wake_at
    )


def _deleting(situation: Situation, goal: Goal, policy: Policy, now: datetime) -> WorkloadStatus:
    code, message = _removal_progress(situation, goal, policy)
    return next_status(situation, Status.DELETING, now, code=code, message=message)


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
        return unreachable(situation.assignment.node_id, dispatch.problem)
    failed = fresh_observation(situation, Actual.FAILED)
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
    reported = f": {seen.message}" if seen.message else ""
    return f"; node {assignment.node_id} reports {seen.actual.capitalize()}{reported}"


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
