"""Handles records that are older than the state of their nodes, after a restore of the store from a backup.

The epoch of a stored assignment only increases. A node with a higher epoch than the record proves that the
record is old, and it refuses every order with the record's epoch. The cases:

    the assigned node has a higher epoch              a new epoch, on the same node
    another node proves a later assignment            assigned there: the most recent placement
    the assigned node has deleted the assignment      a new epoch; with data only on an operator's request,
                                                      because its data may be on an unreachable node

An epoch that a node reports is only compared, never adopted: the counter continues from the clock. A node
that reports arbitrary epochs gets at most one new epoch for its own workload every 30 seconds.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import structs

from persys.core.agent.run_limits import INTERRUPTED
from persys.core.nodes import Phase
from persys.core.placement.requirements import holds_data, is_exclusive
from persys.core.placement.tiers import needs_on_any_tier
from persys.core.reconcile.assign import bind, wait
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import (
    Copy,
    Decision,
    Placer,
    Situation,
    fresh_observation,
    next_status,
)
from persys.model.placement import Assignment, Tombstone
from persys.model.status import Actual, Failure, FailureReason, Status, WorkloadStatus
from persys.model.workload import Desired

STALE_EPOCH = "StaleEpoch"  # the node has a newer assignment
ALREADY_DELETED = "AlreadyDeleted"  # the node has deleted this assignment
RENEWED_AFTER = timedelta(seconds=30)  # the shortest time between two new epochs


def held_epoch(situation: Situation) -> int:
    """The epoch that the assigned node reports, if it shows that the record is old; otherwise 0."""
    seen, bound = situation.observation, situation.assignment
    if seen is None or bound is None or seen.node_id != bound.node_id:
        return 0
    epoch = max(seen.epoch, seen.known_epoch)
    return epoch if epoch > bound.epoch or seen.known_epoch else 0


def proven_epoch(situation: Situation) -> int:
    """The highest epoch that another node proves; 0: none."""
    return max((copy.epoch for copy in situation.copies if copy.proven), default=0)


def renewed(situation: Situation, placer: Placer, now: datetime) -> Decision | None:
    """The decision for an outdated record; None if it is up to date or must not be renewed now."""
    bound = situation.assignment
    if bound is None:
        return None
    newest = _newest_copy(situation, above=max(bound.epoch, held_epoch(situation)))
    if newest is not None and situation.workload.desired is not Desired.DELETED:
        return _follow(situation, newest, placer, now)
    if _is_behind(situation) and _may_renew(situation, bound, now):
        return _renew(situation, bound, now)
    return None


def explained(situation: Situation) -> Situation:
    """The situation with a message that says what to do when a node refuses an epoch."""
    failed, bound = fresh_observation(situation, Actual.FAILED), situation.assignment
    if failed is None or failed.failure is None or bound is None or not failed.known_epoch:
        return situation
    if failed.known_epoch >= situation.next_epoch:
        text = (
            f"node {bound.node_id} refuses orders because it has epoch {failed.known_epoch}, which this "
            "cluster did not assign; check the clock of the scheduler, or remove the node"
        )
        failure = structs.replace(failed.failure, message=text)
    elif failed.failure.code == ALREADY_DELETED and situation.workload.runs_once:
        text = f"interrupted: node {bound.node_id} has deleted it, and its result is not known"
        failure = Failure(FailureReason.RUNTIME_ERROR, text, False, INTERRUPTED)
    elif failed.failure.code == ALREADY_DELETED and holds_data(situation.workload):
        failure = Failure(
            FailureReason.RUNTIME_ERROR, _was_deleted(situation, bound), False, ALREADY_DELETED
        )
    else:
        return situation
    seen = structs.replace(failed, failure=failure, message=failure.message)
    return replace(situation, observation=seen)


def _was_deleted(situation: Situation, bound: Assignment) -> str:
    name = situation.workload.id
    return (
        f"node {bound.node_id} has deleted this assignment (epoch {bound.epoch}) of a workload with data: "
        "the store was probably restored from an older backup. If no other node has its data, "
        f"`persysctl workload retry {name}` starts it on {bound.node_id}; otherwise delete it, and adopt its "
        "copy (`persysctl orphans list`)"
    )


def _newest_copy(situation: Situation, *, above: int) -> Copy | None:
    found = [copy for copy in situation.copies if copy.proven and copy.epoch > above]
    return max(found, key=lambda copy: copy.epoch, default=None)


def _follow(situation: Situation, copy: Copy, placer: Placer, now: datetime) -> Decision | None:
    """Assign it to the node of its newest copy. Without data it stays on the record's node if that fails."""
    bound, needs = situation.assignment, needs_on_any_tier(situation.workload)
    assert bound is not None
    rejection = placer.fits_on(situation.workload.id, copy.node_id, needs)
    if rejection is None:
        why = f"the node has its newest copy; the record with {bound.node_id} was outdated"
        moved = bind(situation, copy.node_id, needs, why, now)
        return replace(moved, tombstone=Tombstone(bound, now, keeps_data=True))
    if not holds_data(situation.workload):
        return None
    waiting = wait(
        situation,
        f"{copy.node_id} has its newest copy with the data, and is {rejection.detail}: free capacity there",
        now,
    )
    return replace(waiting, assignment=bound)


def _is_behind(situation: Situation) -> bool:
    if held_epoch(situation):
        return not _needs_operator(situation)
    return _was_requested_again(situation)


def _needs_operator(situation: Situation) -> bool:
    failed = fresh_observation(situation, Actual.FAILED)
    return (
        failed is not None
        and failed.failure is not None
        and failed.failure.code == ALREADY_DELETED
        and is_exclusive(situation.workload)
        and situation.workload.desired is not Desired.DELETED
    )


def _was_requested_again(situation: Situation) -> bool:
    """Whether a retry was requested after the node had deleted the assignment."""
    workload_status = situation.workload_status
    return (
        workload_status is not None
        and workload_status.failure is not None
        and workload_status.failure.code == ALREADY_DELETED
        and situation.retry is None
        and situation.observation is None
    )


def _may_renew(situation: Situation, bound: Assignment, now: datetime) -> bool:
    if situation.phase is not Phase.ALIVE or situation.next_epoch <= held_epoch(situation):
        return False
    return _was_requested_again(situation) or now >= bound.assigned_at + RENEWED_AFTER


def _renew(situation: Situation, bound: Assignment, now: datetime) -> Decision:
    held, workload = held_epoch(situation), situation.workload
    why = (
        f"the node has epoch {held}, and the record was older" if held else "a retry was requested"
    )
    assignment = structs.replace(bound, epoch=situation.next_epoch, assigned_at=now, why=why)
    if workload.desired is Desired.DELETED:
        return Decision(assignment, situation.workload_status, None, wake_at=now)
    effect = Apply(bound.node_id, workload, assignment.epoch)
    workload_status = _as_before(situation, assignment, now)
    return Decision(assignment, workload_status, None, effects=(effect,))


def _as_before(situation: Situation, assignment: Assignment, now: datetime) -> WorkloadStatus:
    """Keep the status until the node responds; a failed workload becomes pending."""
    workload_status = situation.workload_status
    if workload_status is not None and workload_status.status is not Status.FAILED:
        return structs.replace(workload_status, epoch=assignment.epoch, healthy_since=None)
    return next_status(
        situation,
        Status.PENDING,
        now,
        code="Starting",
        message=f"starting on {assignment.node_id}",
        epoch=assignment.epoch,
    )
