"""Moves an offloaded workload back to tier 0 when a node there has capacity (`return: when-free`).

    it runs in a higher tier  ──▶ return-started: assigned to tier 0; the offloaded copy keeps running
    it runs in tier 0         ──▶ the offloaded copy is released, and removed like any old copy
    it does not start there   ──▶ return-failed: assigned to the offloaded copy again

The offloaded copy has a tombstone with `after_running`, which is not executed until it is released. So each
state is in the records, and a new leader continues. A failed start is counted as a retry of the revision: the
next return waits until the retry is reset, after the workload was stable for a while.
"""

from dataclasses import replace
from datetime import datetime

from msgspec import structs

from persys.core.agent.health import HEALTH, Health
from persys.core.nodes import Phase
from persys.core.placement.requirements import holds_data, requirements_of
from persys.core.placement.select import Placed
from persys.core.placement.tiers import needs_on_any_tier
from persys.core.reconcile.assign import bind, refused_as_full, refused_by_runtime
from persys.core.reconcile.evacuate import START_DEADLINE, UNANSWERED_MAX, stopped_by_agent_at
from persys.core.reconcile.situation import (
    COMPLETED,
    Case,
    Decision,
    Situation,
    fresh_observation,
    has_converged,
    kept_copy,
    satisfies,
)
from persys.model.placement import Tombstone
from persys.model.spec import ContainerSpec, HealthCheck
from persys.model.status import Actual, Retry, Status, WorkloadStatus
from persys.model.workload import Desired, Workload


def return_started(case: Case) -> Decision | None:
    """It runs in a higher tier and a node of tier 0 has capacity: start it there, keep the other copy."""
    situation, assignment = case.situation, case.situation.assignment
    if assignment is None or not situation.may_return or not can_return(situation):
        return None
    needs = requirements_of(situation.workload)
    found = case.placer.place(needs, assignment)
    if not isinstance(found, Placed) or case.placer.awaited(found.node_id):
        return None
    why = f"returned from {assignment.node_id} in tier {situation.tier}: {found.why}"
    moved = bind(situation, found.node_id, needs, why, case.now)
    kept = Tombstone(assignment, case.now, keeps_data=True, after_running=True)
    return replace(moved, tombstone=kept)


def can_return(situation: Situation) -> bool:
    """Whether it is offloaded, wants to return, has no data, and runs without problems."""
    workload, seen = situation.workload, situation.observation
    return (
        situation.tier > 0
        and workload.rules.return_when_free
        and workload.desired is Desired.RUNNING
        and not holds_data(workload)
        and situation.phase is Phase.ALIVE
        and situation.retry is None
        and kept_copy(situation) is None
        and has_converged(situation)
        and situation.workload_status is not None
        and situation.workload_status.status is Status.RUNNING
        and (seen is None or seen.actual is Actual.RUNNING)
    )


def return_failed(case: Case) -> Decision | None:
    """It did not start in tier 0, and its offloaded copy still runs: assign it there again."""
    situation, copy = case.situation, kept_copy(case.situation)
    if copy is None or copy.lost or copy.draining or not copy.may_run:
        return None
    problem = _problem(case)
    if not problem:
        return None
    workload, left = situation.workload, situation.assignment
    why = f"stays in its tier: its return failed: {problem}"
    kept = bind(situation, copy.node_id, needs_on_any_tier(workload), why, case.now)
    attempts = situation.retry.attempts if situation.retry is not None else 0
    tombstone = None
    if left is not None:
        lost = situation.phase is Phase.LOST
        stops_at = stopped_by_agent_at(situation, case.now) if lost else None
        tombstone = Tombstone(left, case.now, keeps_data=True, stops_at=stops_at)
    return replace(
        kept,
        retry=Retry(workload.id, workload.revision, attempts + 1, case.now),
        tombstone=tombstone,
        restored=copy.kept,
    )


def with_kept_copy(decision: Decision, situation: Situation, now: datetime) -> Decision:
    """Release the copy that is kept when it is not needed any more, or decide again at the deadline.

    A draining node does not keep it for longer, also if other nodes refuse the workload again and again. In
    another tier it is assigned again at the deadline of each start.
    """
    copy, assignment = kept_copy(situation), decision.assignment
    if copy is None or copy.kept is None or decision.restored is not None:
        return decision
    due_at = assignment.assigned_at + START_DEADLINE if assignment is not None else None
    if copy.draining:
        due_at = copy.kept.deleted_at + START_DEADLINE
    is_late = copy.draining and due_at is not None and due_at <= now
    if is_late or _is_needless(decision, situation.workload):
        return replace(decision, released=structs.replace(copy.kept, after_running=False))
    if due_at is None or due_at <= now:
        return decision
    return replace(decision, wake_at=min(decision.wake_at or due_at, due_at))


def _is_needless(decision: Decision, workload: Workload) -> bool:
    if decision.forget or workload.desired is not Desired.RUNNING:
        return True
    status, assignment = decision.workload_status, decision.assignment
    return (
        status is not None
        and assignment is not None
        and status.epoch == assignment.epoch
        and satisfies(status, workload)
        and _is_healthy(status, workload)
    )


def _is_healthy(status: WorkloadStatus, workload: Workload) -> bool:
    """A workload without a health check is healthy when it runs."""
    if status.code == COMPLETED:
        return True
    health = status.metadata.get(HEALTH)
    if health is None:
        spec = workload.spec
        return not (isinstance(spec, ContainerSpec) and spec.health != HealthCheck())
    return health == Health.HEALTHY


def _problem(case: Case) -> str:
    """Why the workload does not start in tier 0; empty if it may still start."""
    situation, assignment, now = case.situation, case.situation.assignment, case.now
    if situation.workload.desired is not Desired.RUNNING:
        return ""
    if assignment is None:
        return "no node of tier 0 fits"
    node_id, dispatch = assignment.node_id, situation.dispatch
    if situation.phase is Phase.LOST:
        return f"node {node_id} is lost"
    if refused_by_runtime(situation) or refused_as_full(situation):
        return f"node {node_id} rejected it"
    if dispatch is not None and dispatch.unanswered_count >= UNANSWERED_MAX:
        return f"node {node_id} does not respond"
    if (failed := fresh_observation(situation, Actual.FAILED)) is not None:
        return failed.failure.message if failed.failure is not None else failed.message
    if situation.retry is not None:
        return "it failed to start"
    running = fresh_observation(situation, Actual.RUNNING)
    if running is not None and running.metadata.get(HEALTH) == Health.UNHEALTHY:
        return "its health check fails"
    if now >= assignment.assigned_at + START_DEADLINE:
        return f"it did not run within {START_DEADLINE.total_seconds():g} s"
    return ""
