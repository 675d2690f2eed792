"""What follows from a decision: the recorded dispatch, freed capacity, the result label of the metrics."""

from datetime import datetime

from persys.core.nodes import Phase
from persys.core.placement.requirements import needs_of
from persys.core.reconcile.assign import amount_differs
from persys.core.reconcile.dispatch import Dispatch, Goal
from persys.core.reconcile.effects import Apply, Remove
from persys.core.reconcile.situation import Decision, Situation
from persys.errors import ConflictError, PersysError, UnavailableError
from persys.model.placement import Assignment
from persys.model.workload import Desired
from persys.scheduler.cluster import Entry
from persys.scheduler.metrics import Result


def renewal(situation: Situation, decision: Decision) -> tuple[Apply, ...]:
    """A changed intent that needs no work on the node is still sent: the node stores it for recovery."""
    bound, workload = decision.assignment, situation.workload
    if bound is None or workload.desired is Desired.DELETED:
        return ()
    if not situation.reports or situation.phase is not Phase.ALIVE:
        return ()
    if amount_differs(bound, needs_of(workload)):
        return ()  # it waits for capacity: its node must not get it before
    return (Apply(bound.node_id, workload, bound.epoch),)


def dispatched(entry: Entry, effect: Apply | Remove, now: datetime) -> Dispatch:
    desired = effect.workload.desired if isinstance(effect, Apply) else Desired.DELETED
    goal = Goal(entry.workload.revision, desired, effect.epoch)
    if entry.dispatch is not None and entry.dispatch.goal == goal:
        # The last problem is shown until there is a reply, so that a repeated attempt causes no new event.
        tries, problem = entry.dispatch.unanswered_count, entry.dispatch.problem
        repeats = entry.dispatch.repeats + (entry.dispatch.answered_at is not None)
        return Dispatch(goal, now, unanswered_count=tries, problem=problem, repeats=repeats)
    return Dispatch(goal, now)


def frees(old: Assignment, decision: Decision) -> bool:
    """Whether a reservation was removed or reduced, so that other workloads may fit."""
    new = decision.assignment
    return new is None or (new.node_id, new.reserved, new.host_ports, new.rules, new.pools) != (
        old.node_id,
        old.reserved,
        old.host_ports,
        old.rules,
        old.pools,
    )


def plans_retry(situation: Situation, decision: Decision) -> bool:
    new = decision.retry
    return new is not None and new.next_at is not None and new != situation.retry


def result_of(err: PersysError) -> Result:
    match err:
        case ConflictError():
            return Result.CONFLICT
        case UnavailableError():
            return Result.UNAVAILABLE
        case _:
            return Result.REFUSED
