"""Assigns a workload to a node: at first, after its node rejected it, and when its requirements change."""

from dataclasses import dataclass, replace
from datetime import datetime

from persys.core.agent.admission import NODE_FULL
from persys.core.nodes import Phase
from persys.core.placement.requirements import Requirements, holds_data, is_exclusive
from persys.core.placement.select import Placed, Unplaceable
from persys.core.placement.tiers import needs_on_any_tier, placement_needs
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import (
    RUNTIME_NOT_AVAILABLE,
    Copy,
    Decision,
    Placer,
    Situation,
    fresh_observation,
    is_finished,
    next_status,
)
from persys.model.ids import NodeId
from persys.model.placement import Assignment, Tombstone
from persys.model.status import Actual, Failure, FailureReason, Status
from persys.model.workload import Desired

MISPLACED = "Misplaced"


def assign(situation: Situation, placer: Placer, now: datetime) -> Decision:
    workload = situation.workload
    if situation.assignment is None and is_finished(situation):
        return finished(situation)  # on its former node
    if situation.copies and (decision := _assign_beside_copies(situation, placer, now)) is not None:
        return decision
    if workload.desired is Desired.STOPPED:
        workload_status = next_status(
            situation,
            Status.STOPPED,
            now,
            code="NotPlaced",
            message="assigned to a node when started",
            revision=workload.revision,
        )
        return Decision(None, workload_status, None)
    needs = placement_needs(situation, now)
    match placer.place(needs, situation.assignment):
        case Placed(node_id=node_id, why=why):
            return bind(situation, node_id, needs, why, now)
        case Unplaceable() as nowhere:
            return wait(situation, nowhere.explain(), now)


def finished(situation: Situation) -> Decision:
    """It has ended and is not run again, so it needs no node. A failed run keeps its retry: given up."""
    status = situation.workload_status
    has_failed = status is not None and status.status is Status.FAILED
    return Decision(None, status, situation.retry if has_failed else None)


def _assign_beside_copies(situation: Situation, placer: Placer, now: datetime) -> Decision | None:
    """Assign the workload to a node that has an unassigned copy of it.

    A workload with data, or that runs once, may only go there; any other prefers it. The order adopts the
    copy, which is then no longer an orphan. None: the copies do not affect placement.
    """
    being_removed = [copy for copy in situation.copies if copy.being_removed and copy.may_run]
    orphaned = [copy.node_id for copy in situation.copies if not copy.being_removed and copy.counts]
    # A stopped workload cannot run twice, so its copies do not matter.
    exclusive = is_exclusive(situation.workload) and situation.workload.desired is Desired.RUNNING
    if exclusive and being_removed:
        return wait(situation, old_copies(being_removed), now)
    if len(orphaned) == 1:
        (node_id,) = orphaned
        needs = needs_on_any_tier(situation.workload)
        rejection = placer.fits_on(situation.workload.id, node_id, needs)
        if rejection is None:
            return bind(situation, node_id, needs, "the node has a copy of it already", now)
        if exclusive:
            why = (
                f"{node_id} has an orphan of it, possibly with its data, and is {rejection.detail}"
            )
            return wait(situation, f"{why}: free capacity there, or delete the orphan", now)
    if exclusive and orphaned:
        why = f"{_named(orphaned)} have orphans of it, possibly with its data"
        return wait(situation, f"{why}: delete all but one", now)
    return None


def old_copies(being_removed: list[Copy]) -> str:
    """Why a workload with data cannot start on another node yet."""
    here = [copy.node_id for copy in being_removed if not copy.lost]
    lost = [copy.node_id for copy in being_removed if copy.lost]
    texts = [f"an old copy is still being removed from {_named(here)}"] if here else []
    if lost:
        texts.append(
            f"an old copy may still run on {_named(lost)}, which is not ready: it waits until the node "
            "returns or is confirmed dead"
        )
    return "; ".join(texts)


def _named(node_ids: list[NodeId]) -> str:
    return ", ".join(sorted(node_ids))


def bind(
    situation: Situation, node_id: NodeId, needs: Requirements, why: str, now: datetime
) -> Decision:
    assignment = _assignment(situation, node_id, needs, why, now)
    verb = "stopping" if situation.workload.desired is Desired.STOPPED else "starting"
    workload_status = next_status(
        situation,
        Status.PENDING,
        now,
        code=verb.capitalize(),
        message=f"{verb} on {node_id}",
        epoch=assignment.epoch,
    )
    effect = Apply(node_id, situation.workload, assignment.epoch)
    return Decision(assignment, workload_status, situation.retry, effects=(effect,))


def wait(situation: Situation, why: str, now: datetime) -> Decision:
    why = "; ".join(
        [why, *(f"{rejected.node_id}: {rejected.why}" for rejected in situation.rejected_nodes)]
    )
    workload_status = next_status(
        situation,
        Status.PENDING,
        now,
        code="Unplaceable",
        message=why,
        failure=Failure(FailureReason.INSUFFICIENT_RESOURCES, why),
    )
    stopping = (copy.stops_at for copy in situation.copies if copy.stops_at and copy.may_run)
    retry_at = min(
        [*(rejected.until for rejected in situation.rejected_nodes), *stopping], default=None
    )
    return Decision(
        None, workload_status, situation.retry, waits_for_capacity=True, wake_at=retry_at
    )


def _assignment(
    situation: Situation, node_id: NodeId, needs: Requirements, why: str, now: datetime
) -> Assignment:
    used = max(
        situation.assignment.epoch if situation.assignment else 0,
        situation.workload_status.epoch if situation.workload_status else 0,
    )
    return Assignment(
        situation.workload.id,
        node_id,
        max(situation.next_epoch, used + 1),
        now,
        reserved=needs.resources,
        host_ports=needs.host_ports,
        why=why,
        rules=needs.rules,
        pools=needs.pools,
    )


def refused_by_runtime(situation: Situation) -> bool:
    """The node does not have the runtime for this type, so it has no copy of the workload."""
    failed = fresh_observation(situation, Actual.FAILED)
    return (
        failed is not None
        and failed.failure is not None
        and failed.failure.code == RUNTIME_NOT_AVAILABLE
    )


def refused_as_full(situation: Situation) -> str:
    """The message with which the node rejected this workload for lack of capacity; "" if it did not.

    A node rejects only a workload that it does not run. But it may hold its data.
    """
    failed = fresh_observation(situation, Actual.FAILED)
    if failed is None or failed.failure is None or failed.failure.code != NODE_FULL:
        return ""
    has_run = situation.workload_status is not None and bool(situation.workload_status.revision)
    if has_run and holds_data(situation.workload):
        return ""
    return failed.failure.message


def after_refusal(situation: Situation, placer: Placer, now: datetime) -> Decision:
    """Reassign a workload that its node rejected.

    A node that accepted the order before it rejected the workload still lists it, so a tombstone removes it.
    A workload with data, or that runs once, moves only when the node can no longer start it: an earlier order
    without a response may still be in flight.
    """
    assignment = situation.assignment
    assert assignment is not None
    if not is_exclusive(situation.workload):
        decision = assign(situation, placer, now)
        if not refused_as_full(situation) or not _has_accepted(situation):
            return decision
        return replace(decision, tombstone=Tombstone(assignment, now, keeps_data=True))
    left = Copy(assignment.node_id, assignment.epoch, being_removed=True)
    unbound = replace(situation, assignment=None, copies=(*situation.copies, left))
    waiting = assign(unbound, placer, now)
    return replace(waiting, tombstone=Tombstone(assignment, now, keeps_data=True))


def _has_accepted(situation: Situation) -> bool:
    """By its response to this leader, or by the proof in its report: only a stored order has one."""
    dispatch, seen = situation.dispatch, situation.observation
    if seen is not None and seen.proof:
        return True
    return dispatch is not None and dispatch.answered_at is not None and not dispatch.refused


def reservation_differs(assignment: Assignment, needs: Requirements) -> bool:
    return amount_differs(assignment, needs) or assignment.rules != needs.rules


def amount_differs(assignment: Assignment, needs: Requirements) -> bool:
    return (assignment.reserved, assignment.host_ports, assignment.pools) != (
        needs.resources,
        needs.host_ports,
        needs.pools,
    )


@dataclass(frozen=True, slots=True)
class Misplaced:
    """It stays on its node although its new rules forbid that, because no other node can run it."""

    why: str


def resize(
    situation: Situation, needs: Requirements, placer: Placer, *, now: datetime
) -> Assignment | Decision | Misplaced:
    """Apply changed requirements or rules: on the same node if they fit, on another if it may move.

    Returns the updated assignment, or the decision to move or to wait.
    """
    assignment = situation.assignment
    assert assignment is not None
    if situation.phase is not Phase.ALIVE:
        return assignment
    needs = replace(needs, tiers=needs_on_any_tier(situation.workload).tiers)
    rejection = placer.fits_on(assignment.workload_id, assignment.node_id, needs)
    if rejection is None:
        return _resized(assignment, needs)
    elsewhere = "its data is on that node"
    if situation.workload.runs_once:
        elsewhere = "it runs once"
    elif not holds_data(situation.workload):
        moved = assign(situation, placer, now)
        if moved.assignment is not None:
            return replace(moved, tombstone=Tombstone(assignment, now, keeps_data=True))
        elsewhere = (
            f"other nodes: {moved.workload_status.message}"
            if moved.workload_status is not None
            else ""
        )
    if not amount_differs(assignment, needs):
        return Misplaced(f"on {assignment.node_id}, {rejection.detail}; {elsewhere}")
    message = f"node {assignment.node_id} {rejection.detail} for this revision"
    workload_status = next_status(
        situation,
        Status.PENDING,
        now,
        code="Unplaceable",
        message=message,
        failure=Failure(FailureReason.INSUFFICIENT_RESOURCES, message),
    )
    return Decision(assignment, workload_status, situation.retry, waits_for_capacity=True)


def misplaced(situation: Situation, here: Decision, why: str, now: datetime) -> Decision:
    """The decision for its current node, with a status that says why it should move."""
    found = here.workload_status
    if found is None or found.code not in ("", MISPLACED):
        return replace(here, waits_for_capacity=True)
    workload_status = next_status(
        situation,
        found.status,
        now,
        code=MISPLACED,
        message=why,
        failure=found.failure,
        revision=found.revision,
        metadata=found.metadata,
    )
    return replace(here, workload_status=workload_status, waits_for_capacity=True)


def _resized(assignment: Assignment, needs: Requirements) -> Assignment:
    return Assignment(
        assignment.workload_id,
        assignment.node_id,
        assignment.epoch,
        assignment.assigned_at,
        reserved=needs.resources,
        host_ports=needs.host_ports,
        why=assignment.why,
        rules=needs.rules,
        pools=needs.pools,
    )
