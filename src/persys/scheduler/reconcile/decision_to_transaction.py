"""Converts a decision into a transaction: the records to write, the events, and the update of memory."""

from datetime import datetime

from msgspec.structs import replace

from persys.core.agent.deviations import DRIFTED
from persys.core.agent.health import UNHEALTHY
from persys.core.drift import mismatch, reported_drift
from persys.core.nodes import Phase
from persys.core.placement.requirements import requirements_of
from persys.core.reconcile.assign import amount_differs
from persys.core.reconcile.converge import WAITS_FOR_OLD_COPY
from persys.core.reconcile.dispatch import Dispatch, Goal
from persys.core.reconcile.effects import Apply, Remove
from persys.core.reconcile.situation import STATE_MISMATCH, Decision, Policy, Situation
from persys.core.reconcile.task_history import is_remembered, remember
from persys.errors import ConflictError, PersysError, UnavailableError
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId
from persys.model.placement import Assignment
from persys.model.status import Drift, DriftType, Status, WorkloadStatus
from persys.model.workload import Desired, Workload
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.drift.records import add_detected, add_resolved
from persys.scheduler.metrics.counters import Result
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.store import keys
from persys.wire.agent.messages import TASK_ID


def add_drift_records(
    change: Transaction,
    cluster: ClusterState,
    situation: Situation,
    decision: Decision,
    policy: Policy,
    *,
    is_user_request: bool,
    now: datetime,
) -> None:
    """`is_user_request`: the user has changed the intent, so earlier drift is resolved."""
    by_node = reported_drift(situation, now=now)
    over = _over(
        cluster, situation, decision, is_user_request=is_user_request, lasts=by_node is not None
    )
    found = by_node or _mismatch(situation, decision, policy, now)
    if found is not None and _is_known(cluster, found):
        found = None
    if found is None and not over:
        return
    if found is not None:
        add_detected(change, found)
    for drift, because in over:
        add_resolved(change, drift, because, now=now)

    def update() -> None:
        if found is not None:
            cluster.drifts.put(found)
        for drift, _ in over:
            cluster.drifts.drop(drift)

    change.also_when_done(update)


def _mismatch(
    situation: Situation, decision: Decision, policy: Policy, now: datetime
) -> Drift | None:
    found = mismatch(situation, policy, now=now)
    shown = decision.workload_status is not None and decision.workload_status.code == STATE_MISMATCH
    if found is None or not (decision.effects or (shown and found.type is DriftType.STATE)):
        return None
    return found


def _is_known(cluster: ClusterState, found: Drift) -> bool:
    known = cluster.drifts.of(found.node_id, found.workload_id)
    return found.type in {drift.type for drift in known}


def _over(
    cluster: ClusterState,
    situation: Situation,
    decision: Decision,
    *,
    is_user_request: bool,
    lasts: bool,
) -> list[tuple[Drift, str]]:
    """`lasts`: the node still reports a difference."""
    old, new, workload_id = situation.assignment, decision.assignment, situation.workload.id
    over = []
    if old is not None and (drifts := cluster.drifts.of(old.node_id, workload_id)):
        because = (
            ""
            if lasts and not is_user_request
            else _because(situation, decision, is_user_request=is_user_request)
        )
        over = [(drift, because) for drift in drifts if because]
    if new is not None and (old is None or old.node_id != new.node_id):
        over += [
            (drift, "assigned to this node now")
            for drift in cluster.drifts.of(new.node_id, workload_id)
            if drift.type is DriftType.ORPHAN
        ]
    return over


def _because(situation: Situation, decision: Decision, *, is_user_request: bool) -> str:
    old, new = situation.assignment, decision.assignment
    if is_user_request:
        return "the intent was changed"
    if new is None or (old is not None and new.node_id != old.node_id):
        return "no longer assigned to this node"
    return "in the desired state" if decision.fulfilled else ""


TASK_ID_MAX = 256
_KIND = {
    Status.RUNNING: EventKind.WORKLOAD_RUNNING,
    Status.STOPPED: EventKind.WORKLOAD_STOPPED,
    Status.FAILED: EventKind.WORKLOAD_FAILED,
    Status.UNKNOWN: EventKind.WORKLOAD_UNKNOWN,
}


def to_transaction(
    entry: WorkloadState | None,
    workload: Workload,
    decision: Decision,
    cluster: ClusterState,
    *,
    user_event: EventKind | None,
    now: datetime,
) -> tuple[Transaction, set[NodeId]]:
    """The change, and the nodes on which it may alter the reservation of the workload."""
    old = entry or WorkloadState(workload, cluster.detached.get(workload.id))
    nodes = _nodes(old.assignment, decision)
    change = Transaction(done=lambda: _apply(cluster, workload, decision, nodes))
    if user_event is not None:
        change.events.append(_event(user_event, workload, old.assignment, now))
    if decision.forget:
        _forget(change, old)
        if entry is not None:
            deleted = _event(EventKind.WORKLOAD_DELETED, workload, old.assignment, now)
            change.events.append(replace(deleted, rule=decision.rule))
    else:
        _write(change, old, workload, decision, is_new=entry is None)
        if entry is not None:
            _note_ended(change, entry, now)
        events = _events(old, workload, decision, now)
        change.events.extend(replace(event, rule=decision.rule) for event in events)
    if decision.tombstone is not None:
        stale = decision.tombstone.assignment
        change.puts[keys.tombstone_key(stale.node_id, workload.id)] = decision.tombstone
    if decision.released is not None:
        stale = decision.released.assignment
        change.puts[keys.tombstone_key(stale.node_id, workload.id)] = decision.released
    if decision.restored is not None:
        stale = decision.restored.assignment
        change.drops.append(keys.tombstone_key(stale.node_id, workload.id))
    return change, nodes


def _write(
    change: Transaction, old: WorkloadState, workload: Workload, decision: Decision, *, is_new: bool
) -> None:
    if is_new or old.workload is not workload:
        change.puts[keys.workload_key(workload.id)] = workload
    if decision.assignment is not None and decision.assignment != old.assignment:
        change.puts[keys.assignment_key(workload.id)] = decision.assignment
    if decision.assignment is None and old.assignment is not None:
        change.drops.append(keys.assignment_key(workload.id))
    if decision.workload_status is not None and decision.workload_status is not old.workload_status:
        change.puts[keys.status_key(workload.id)] = decision.workload_status
    if decision.retry is not None and decision.retry != old.retry:
        change.puts[keys.retry_key(workload.id)] = decision.retry
    if decision.retry is None and old.retry is not None:
        change.drops.append(keys.retry_key(workload.id))


def _note_ended(change: Transaction, entry: WorkloadState, now: datetime) -> None:
    """Add the action that its node reports as ended, unless it is stored already."""
    seen = entry.observation
    if seen is None or seen.action is None:
        return
    if is_remembered(entry.history, seen.node_id, seen.action):
        return
    history = remember(entry.history, seen.workload_id, seen.node_id, [seen.action], now=now)
    change.puts[keys.history_key(seen.workload_id)] = history

    def update() -> None:
        entry.history = history

    change.also_when_done(update)


def _forget(change: Transaction, old: WorkloadState) -> None:
    workload_id = old.workload.id
    change.drops.append(keys.workload_key(workload_id))
    for record, key in (
        (old.assignment, keys.assignment_key(workload_id)),
        (old.workload_status, keys.status_key(workload_id)),
        (old.retry, keys.retry_key(workload_id)),
        (old.history, keys.history_key(workload_id)),
    ):
        if record is not None:
            change.drops.append(key)


def _apply(
    cluster: ClusterState, workload: Workload, decision: Decision, nodes: set[NodeId]
) -> None:
    for tombstone in (decision.tombstone, decision.released):
        if tombstone is not None:
            cluster.put_tombstone(tombstone)
    if decision.restored is not None:
        cluster.drop_tombstone(decision.restored.assignment.node_id, workload.id)
    cluster.detached.pop(workload.id, None)  # attached to its workload again
    if decision.forget:
        if workload.id in cluster.workloads:
            cluster.drop_workload(workload.id)
    else:
        entry = cluster.put_workload(workload)
        cluster.put_assignment(workload.id, decision.assignment)
        cluster.put_state(entry, decision.workload_status, decision.retry)
        entry.rule = decision.rule
    cluster.update_reservations(workload.id, nodes)


def _nodes(old: Assignment | None, decision: Decision) -> set[NodeId]:
    new = decision.assignment
    if old is not None and new is not None and old == new:
        return set()
    return {assignment.node_id for assignment in (old, new) if assignment is not None}


def _events(
    old: WorkloadState, workload: Workload, decision: Decision, now: datetime
) -> list[Event]:
    user_event = []
    assignment, workload_status = decision.assignment, decision.workload_status
    moved = assignment is not None and (
        old.assignment is None or old.assignment.epoch != assignment.epoch
    )
    if moved and assignment is not None:
        user_event.append(
            _event(EventKind.WORKLOAD_PLACED, workload, assignment, now, assignment.why)
        )
    if workload_status is not None and _is_change(old.workload_status, workload_status):
        if workload_status.code == "Unplaceable":
            user_event.append(
                _event(
                    EventKind.WORKLOAD_UNPLACEABLE,
                    workload,
                    assignment,
                    now,
                    workload_status.message,
                )
            )
        elif workload_status.status is Status.RUNNING and workload_status.code == UNHEALTHY:
            user_event.append(
                _event(
                    EventKind.WORKLOAD_UNHEALTHY, workload, assignment, now, workload_status.message
                )
            )
        elif _recovered(old.workload_status, workload_status):
            user_event.append(_event(EventKind.WORKLOAD_HEALTHY, workload, assignment, now))
        elif workload_status.status in _KIND and not _is_drift(
            old.workload_status, workload_status
        ):
            event = _event(
                _KIND[workload_status.status], workload, assignment, now, workload_status.message
            )
            user_event.append(
                replace(event, task_id=workload_status.metadata.get(TASK_ID, "")[:TASK_ID_MAX])
            )
    return user_event


def _is_change(old: WorkloadStatus | None, new: WorkloadStatus) -> bool:
    return old is None or (old.status, old.code) != (new.status, new.code)


def _recovered(old: WorkloadStatus | None, new: WorkloadStatus) -> bool:
    """It kept running and is healthy again."""
    return (
        old is not None
        and old.status is new.status is Status.RUNNING
        and old.code == UNHEALTHY
        and not new.code
    )


def _is_drift(old: WorkloadStatus | None, new: WorkloadStatus) -> bool:
    """It kept running: the difference is reported by the events of the drift."""
    return (
        old is not None
        and old.status is new.status is Status.RUNNING
        and DRIFTED in (old.code, new.code)
    )


def _event(
    kind: EventKind,
    workload: Workload,
    assignment: Assignment | None,
    now: datetime,
    message: str = "",
) -> Event:
    return Event(
        now,
        kind,
        message,
        workload_id=workload.id,
        node_id=assignment.node_id if assignment else "",
        revision=workload.revision,
        epoch=assignment.epoch if assignment else 0,
    )


def intent_update(situation: Situation, decision: Decision) -> tuple[Apply, ...]:
    """A changed intent that needs no work on the node is still sent: the node stores it for recovery."""
    bound, workload = decision.assignment, situation.workload
    if bound is None or workload.desired is Desired.DELETED:
        return ()
    if not situation.reports or situation.phase is not Phase.ALIVE:
        return ()
    if amount_differs(bound, requirements_of(workload)):
        return ()  # it waits for capacity: its node must not get it before
    if decision.rule == WAITS_FOR_OLD_COPY:
        return ()
    return (Apply(bound.node_id, workload, bound.epoch),)


def next_dispatch(entry: WorkloadState, effect: Apply | Remove, now: datetime) -> Dispatch:
    desired = effect.workload.desired if isinstance(effect, Apply) else Desired.DELETED
    goal = Goal(entry.workload.revision, desired, effect.epoch)
    if entry.dispatch is not None and entry.dispatch.goal == goal:
        # The last problem is shown until there is a reply, so that a repeated attempt causes no new event.
        tries, problem = entry.dispatch.unanswered_count, entry.dispatch.problem
        repeats = entry.dispatch.repeats + (entry.dispatch.answered_at is not None)
        return Dispatch(goal, now, unanswered_count=tries, problem=problem, repeats=repeats)
    return Dispatch(goal, now)


def releases_capacity(old: Assignment, decision: Decision) -> bool:
    """Whether a reservation was removed or reduced, so that other workloads may fit."""
    new = decision.assignment
    return new is None or (new.node_id, new.reserved, new.host_ports, new.rules, new.pools) != (
        old.node_id,
        old.reserved,
        old.host_ports,
        old.rules,
        old.pools,
    )


def schedules_retry(situation: Situation, decision: Decision) -> bool:
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
