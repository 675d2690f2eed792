"""When a workload leaves its node: the node is lost, or shall become empty.

What holds data stays bound to a lost node, because a second copy might run beside the first: only an
operator who confirms the node dead sets it free. It stays on a draining node too: its data would not come.
"""

from dataclasses import replace
from datetime import datetime

from persys.core.assigning import assign
from persys.core.liveness import Phase
from persys.core.placement.needs import holds_data
from persys.core.situation import Decision, Rooms, Situation, believe, is_finished
from persys.model.assignment import Tombstone
from persys.model.belief import Status
from persys.model.workload import Desired, Workload


def must_leave(situation: Situation) -> bool:
    if situation.phase is Phase.LOST:
        return situation.confirmed_dead or not holds_data(situation.workload)
    return situation.draining and stays_because(situation.workload) == ""


def stays_because(workload: Workload) -> str:
    """Why a workload cannot leave a draining node; empty if it can."""
    return "its data is on this node" if holds_data(workload) else ""


def leave(situation: Situation, rooms: Rooms, now: datetime) -> Decision | None:
    """Go elsewhere, with a tombstone for the copy that is left behind. None: it fits nowhere else."""
    assignment = situation.assignment
    assert assignment is not None
    tombstone = Tombstone(assignment, now)
    if is_finished(situation):
        return Decision(None, situation.belief, None, tombstone=tombstone)
    moved = assign(situation, rooms, now)
    if moved.assignment is None and situation.workload.desired is Desired.RUNNING:
        return None
    return replace(moved, tombstone=tombstone)


def stranded(situation: Situation, rooms: Rooms, now: datetime) -> Decision:
    """On a lost node, and no room elsewhere: still bound, for the node may come back first."""
    assignment = situation.assignment
    assert assignment is not None
    nowhere = assign(situation, rooms, now).belief
    assert nowhere is not None
    message = f"node {assignment.node_id} is lost; elsewhere: {nowhere.message}"
    belief = believe(situation, Status.UNKNOWN, now, code="NodeLost", message=message)
    return Decision(assignment, belief, situation.retry, waits_for_room=True)
