"""Decides when a workload leaves its node: the node is lost or draining.

A workload with data stays assigned to a lost node, because a second copy could run beside the first. It moves
when an operator confirms the node dead, or with `stop_after` once its agent has certainly stopped it. It also
stays on a draining node: its data cannot move. Files that a workload wrote stay on its former node.

A workload without data and fixed host ports runs on a draining node until it is healthy on its next one, at
most `START_DEADLINE`: its tombstone has `after_running`. So a drain does not interrupt it while the next node
pulls its image.

A workload that runs once, a member of a job, never moves after it was assigned: it may have started. On a
draining node it runs to its end. The retries of its job replace it when its node is lost.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil

from msgspec import structs

from persys.core.nodes import Phase
from persys.core.placement.requirements import holds_data, is_exclusive
from persys.core.reconcile.assign import assign, finished
from persys.core.reconcile.situation import (
    Decision,
    Placer,
    Situation,
    is_finished,
    kept_copy,
    next_status,
)
from persys.model.placement import Tombstone
from persys.model.spec import stop_grace_seconds
from persys.model.status import Status
from persys.model.workload import Desired, Workload

STOPS_AT_ONCE = 16
MARGIN = timedelta(seconds=10)
MARGIN_SHARE = 0.05


def stopped_after(workload: Workload, *, node_workload_count: int) -> timedelta:
    """Time since the last heartbeat after which the workload no longer runs on the node.

    `node_workload_count` is the number of workloads on the node: it does not stop all of them at once.
    """
    rounds = max(1, ceil(node_workload_count / STOPS_AT_ONCE))
    span = timedelta(
        seconds=workload.stop_after_seconds + rounds * stop_grace_seconds(workload.spec)
    )
    return span * (1 + MARGIN_SHARE) + MARGIN


UNANSWERED_MAX = 2  # orders in a row
# A copy that is kept is removed by then, although the workload does not run elsewhere.
START_DEADLINE = timedelta(minutes=10)
RUNS_ONCE = "it runs once, and stays until it has ended"


def must_leave(situation: Situation, now: datetime) -> bool:
    if situation.workload.runs_once:
        has_to = situation.phase is Phase.LOST or situation.draining
        return has_to and is_finished(situation)
    if situation.phase is Phase.LOST:
        if situation.confirmed_dead:
            return True
        if situation.workload.stop_after_seconds:
            free_at = stopped_by_agent_at(situation, now)
            return free_at is not None and now >= free_at
        return not holds_data(situation.workload)
    if awaits_contact(situation):
        return False
    return situation.draining and stays_because(situation.workload) == ""


def awaits_contact(situation: Situation) -> bool:
    """Whether it stays on a node that may be unreachable: its agent may not have stopped it yet."""
    is_certain = situation.phase is Phase.ALIVE and situation.in_contact
    return bool(situation.workload.stop_after_seconds) and not is_certain


def stopped_by_agent_at(situation: Situation, now: datetime) -> datetime | None:
    """When the agent of the lost node has certainly stopped it. None: that is not guaranteed."""
    workload = situation.workload
    heard_at = now - situation.silent
    if (
        not workload.stop_after_seconds
        or not situation.supports_stop_after
        or not _knows_its_order(situation)
        # An intent newer than the last heartbeat has not reached the node. A delete changes no rule.
        or (workload.desired is not Desired.DELETED and workload.updated_at > heard_at)
    ):
        return None
    return heard_at + stopped_after(workload, node_workload_count=situation.node_workload_count)


def _knows_its_order(situation: Situation) -> bool:
    """Whether the node reported this revision of this assignment."""
    workload, assignment, seen = situation.workload, situation.assignment, situation.observation
    assert assignment is not None
    if seen is not None:
        return (seen.revision, seen.epoch) == (workload.revision, assignment.epoch)
    workload_status = situation.workload_status
    return workload_status is not None and (workload_status.revision, workload_status.epoch) == (
        workload.revision,
        assignment.epoch,
    )


def was_never_accepted(situation: Situation) -> bool:
    """Whether the node did not respond to several orders and never reported the workload."""
    dispatch, workload = situation.dispatch, situation.workload
    return (
        situation.phase is Phase.ALIVE
        and dispatch is not None
        and dispatch.unanswered_count >= UNANSWERED_MAX
        and workload.desired is Desired.RUNNING
        and not is_exclusive(workload)
        and (situation.workload_status is None or not situation.workload_status.revision)
    )


def stays_because(workload: Workload) -> str:
    """Why a workload cannot leave a draining node; empty if it can."""
    if workload.runs_once:
        return RUNS_ONCE
    return "its data is on this node" if holds_data(workload) else ""


def leave(situation: Situation, placer: Placer, now: datetime) -> Decision | None:
    """Move to another node, with a tombstone for the old copy. None: no other node fits."""
    assignment = situation.assignment
    assert assignment is not None
    stops_at = stopped_by_agent_at(situation, now) if situation.phase is Phase.LOST else None
    tombstone = Tombstone(assignment, now, keeps_data=True, stops_at=stops_at)
    if is_finished(situation):
        return replace(finished(situation), tombstone=tombstone)
    moved = assign(situation, placer, now)
    if moved.assignment is None and situation.workload.desired is Desired.RUNNING:
        return None
    if moved.assignment is not None and moved.assignment.node_id == assignment.node_id:
        return None  # its node responds again: a tombstone would remove the assigned copy
    if moved.assignment is not None and _runs_until_replaced(situation):
        tombstone = structs.replace(tombstone, after_running=True)
    return replace(moved, tombstone=tombstone)


def _runs_until_replaced(situation: Situation) -> bool:
    """Whether its copy on a draining node stays until it runs on the next one: a second copy does no harm.

    With `stop_after` two copies are avoided as far as possible. A workload with fixed host ports is replaced
    in place, as in a set: two nodes may share an address. Only one copy is kept at a time.
    """
    workload, status = situation.workload, situation.workload_status
    assert situation.assignment is not None
    return (
        situation.draining
        and situation.phase is not Phase.LOST
        and workload.desired is Desired.RUNNING
        and not workload.stop_after_seconds
        and not is_exclusive(workload)
        and not situation.assignment.host_ports
        and status is not None
        and status.status is Status.RUNNING
        and status.epoch == situation.assignment.epoch
        and kept_copy(situation) is None
    )


def stranded(situation: Situation, placer: Placer, now: datetime) -> Decision:
    """On a lost node and no other node fits: stay assigned, since the node may return first."""
    assignment = situation.assignment
    assert assignment is not None
    nowhere = assign(situation, placer, now).workload_status
    assert nowhere is not None
    message = f"node {assignment.node_id} is lost; other nodes: {nowhere.message}"
    workload_status = next_status(situation, Status.UNKNOWN, now, code="NodeLost", message=message)
    return Decision(assignment, workload_status, situation.retry, waits_for_capacity=True)
