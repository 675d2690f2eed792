"""Give a workload a node: at first, again when its node cannot run it, and when it needs another amount."""

from dataclasses import replace
from datetime import datetime

from persys.core.effects import Apply
from persys.core.liveness import Phase
from persys.core.placement.needs import Needs, holds_data, needs_of
from persys.core.placement.select import Placed, Unplaceable
from persys.core.situation import (
    RUNTIME_NOT_AVAILABLE,
    Decision,
    Rooms,
    Situation,
    believe,
    current,
    is_finished,
)
from persys.model.assignment import Assignment, Tombstone
from persys.model.belief import Status
from persys.model.failure import Failure, FailureReason
from persys.model.ids import NodeId
from persys.model.observation import Actual
from persys.model.workload import Desired


def assign(situation: Situation, rooms: Rooms, now: datetime) -> Decision:
    workload = situation.workload
    if workload.desired is Desired.STOPPED:
        belief = believe(
            situation, Status.STOPPED, now, code="NotPlaced", message="gets a node when started"
        )
        return Decision(None, belief, None)
    if situation.assignment is None and is_finished(situation):
        # It ran to completion on a node that it has left.
        return Decision(None, situation.belief, None)
    needs = needs_of(workload)
    match rooms.place(needs):
        case Placed(node_id=node_id, why=why):
            assignment = _assignment(situation, node_id, needs, why, now)
            belief = believe(
                situation,
                Status.PENDING,
                now,
                code="Starting",
                message=f"starting on {node_id}",
                epoch=assignment.epoch,
            )
            effect = Apply(node_id, workload, assignment.epoch)
            return Decision(assignment, belief, situation.retry, effects=(effect,))
        case Unplaceable() as nowhere:
            belief = believe(
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


def refused_by_runtime(situation: Situation) -> bool:
    """The node turned out not to run this type, so nothing of the workload is there."""
    failed = current(situation, Actual.FAILED)
    return (
        failed is not None
        and failed.failure is not None
        and failed.failure.code == RUNTIME_NOT_AVAILABLE
    )


def reservation_differs(assignment: Assignment, needs: Needs) -> bool:
    return assignment.reserved != needs.resources or assignment.host_ports != needs.host_ports


def resize(
    situation: Situation, needs: Needs, rooms: Rooms, *, now: datetime
) -> Assignment | Decision:
    """A new revision needs another amount: here if it fits, elsewhere if it may move.

    Returns the assignment as it goes on with the new amount, or the decision to go elsewhere or to wait.
    """
    assignment = situation.assignment
    assert assignment is not None
    if situation.phase is not Phase.ALIVE:
        return assignment
    rejection = rooms.fits_on(assignment.workload_id, assignment.node_id, needs)
    if rejection is None:
        return _resized(assignment, needs)
    if not holds_data(situation.workload):
        moved = assign(situation, rooms, now)
        if moved.assignment is not None:
            return replace(moved, tombstone=Tombstone(assignment, now))
    message = f"node {assignment.node_id} {rejection.detail} for this revision"
    belief = believe(
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
