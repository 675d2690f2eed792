"""Puts records into memory and drops them: a pair of functions per record type with state of its own.

A put takes a stored record, a drop the key of a deleted one. Both update the reservations on nodes. Dropping
a missing record does nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from persys.core.epochs import Epochs, restart_at
from persys.core.recovery.merge import Merged
from persys.model.action import History
from persys.model.event import Event, NumberedEvent
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node, RemovedNode
from persys.model.placement import Assignment, EpochCounter, Tombstone
from persys.model.status import Drift, DriftType, Retry, WorkloadStatus
from persys.model.workload import Workload
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys


@dataclass(frozen=True, slots=True)
class Memory:
    """The target of records. New nodes get a lease until `lease_until`."""

    cluster: ClusterState
    lease_until: float
    now: datetime


def put_node(memory: Memory, node: Node) -> None:
    known = memory.cluster.nodes.get(node.id)
    memory.cluster.put_node(node, lease_until=known.lease_until if known else memory.lease_until)


def drop_node(memory: Memory, key: str) -> None:
    """Other records of the node stay: its own record may be unreadable instead of deleted."""
    cluster, node_id = memory.cluster, NodeId(_name(key))
    if node_id not in cluster.nodes:
        return
    tombstones, drifts = cluster.tombstones.get(node_id, {}), cluster.drifts.on(node_id)
    cluster.drop_node(node_id)
    for drift in drifts:
        put_drift(memory, drift)
    for tombstone in tombstones.values():
        put_tombstone(memory, tombstone)
    for assignment in assignments_on(cluster, node_id):
        cluster.update_reservations(assignment.workload_id, (node_id,))


def put_epoch_counter(memory: Memory, counter: EpochCounter) -> None:
    memory.cluster.epochs.skip_reserved(counter)
    memory.cluster.epochs.on_record = True


def drop_epoch_counter(memory: Memory, _key: str) -> None:
    """Used epochs stay used."""
    memory.cluster.epochs.on_record = False


def assume_epochs(memory: Memory, key: str) -> None:
    """The counter is unreadable: epochs continue above all that can have been used."""
    epochs = memory.cluster.epochs
    if key == keys.EPOCHS:
        epochs.skip_reserved(EpochCounter(restart_at([epochs.reserved_until], now=memory.now)))


def epoch_counter(cluster: ClusterState) -> Iterable[EpochCounter]:
    counter = cluster.epochs.on_record_now()
    return (counter,) if counter is not None else ()


def rebuilt_epoch_counter(merged: Merged, held: Iterable[EpochCounter]) -> Iterable[EpochCounter]:
    """Keeps the key of existing proofs, if it is known."""
    epochs = Epochs()
    for counter in held:
        epochs.skip_reserved(counter)
    return (epochs.restarted(merged.last_epoch()),)


def put_removal(memory: Memory, removal: RemovedNode) -> None:
    memory.cluster.removed.put(removal)


def assume_removed(memory: Memory, key: str) -> None:
    """The time of removal is unknown: certificates from before now are refused, unless the node is back."""
    node_id = NodeId(_name(key))
    if node_id not in memory.cluster.nodes:
        memory.cluster.removed.put(RemovedNode(node_id, memory.now))


def put_workload(memory: Memory, workload: Workload) -> None:
    cluster = memory.cluster
    cluster.put_workload(workload)
    if (assignment := cluster.detached.pop(workload.id, None)) is not None:
        _bind(cluster, workload.id, assignment)


def drop_workload(memory: Memory, key: str) -> None:
    cluster, workload_id = memory.cluster, WorkloadId(_name(key))
    entry = cluster.workloads.get(workload_id)
    if entry is None:
        return
    assignment = entry.assignment
    _bind(cluster, workload_id, None)
    cluster.drop_workload(workload_id)
    if assignment is not None:
        _bind(cluster, workload_id, assignment)


def put_assignment(memory: Memory, assignment: Assignment) -> None:
    _bind(memory.cluster, assignment.workload_id, assignment)


def drop_assignment(memory: Memory, key: str) -> None:
    _bind(memory.cluster, WorkloadId(_name(key)), None)


def _bind(cluster: ClusterState, workload_id: WorkloadId, assignment: Assignment | None) -> None:
    entry = cluster.workloads.get(workload_id)
    old = entry.assignment if entry is not None else cluster.detached.get(workload_id)
    if entry is not None:
        cluster.put_assignment(workload_id, assignment)
    elif assignment is not None:
        cluster.detached[workload_id] = assignment
    else:
        cluster.detached.pop(workload_id, None)
    nodes = {one.node_id for one in (old, assignment) if one is not None}
    cluster.update_reservations(workload_id, nodes)


def assignments(cluster: ClusterState) -> Iterable[Assignment]:
    for entry in cluster.workloads.values():
        if entry.assignment is not None:
            yield entry.assignment
    yield from cluster.detached.values()


def assignments_on(cluster: ClusterState, node_id: NodeId) -> list[Assignment]:
    bound = cluster.assignments_of(cluster.on_node.get(node_id, ())).values()
    return [*bound, *(one for one in cluster.detached.values() if one.node_id == node_id)]


def put_status(memory: Memory, workload_status: WorkloadStatus) -> None:
    if entry := memory.cluster.workloads.get(workload_status.workload_id):
        memory.cluster.put_state(entry, workload_status, entry.retry)


def drop_status(memory: Memory, key: str) -> None:
    if entry := memory.cluster.workloads.get(WorkloadId(_name(key))):
        memory.cluster.put_state(entry, None, entry.retry)


def put_retry(memory: Memory, retry: Retry) -> None:
    if entry := memory.cluster.workloads.get(retry.workload_id):
        memory.cluster.put_state(entry, entry.workload_status, retry)


def drop_retry(memory: Memory, key: str) -> None:
    if entry := memory.cluster.workloads.get(WorkloadId(_name(key))):
        memory.cluster.put_state(entry, entry.workload_status, None)


def put_history(memory: Memory, history: History) -> None:
    if entry := memory.cluster.workloads.get(history.workload_id):
        entry.history = history


def drop_history(memory: Memory, key: str) -> None:
    if entry := memory.cluster.workloads.get(WorkloadId(_name(key))):
        entry.history = None


def put_tombstone(memory: Memory, tombstone: Tombstone) -> None:
    memory.cluster.put_tombstone(tombstone)
    stale = tombstone.assignment
    memory.cluster.update_reservations(stale.workload_id, (stale.node_id,))


def drop_tombstone(memory: Memory, key: str) -> None:
    node_id = NodeId(key.removeprefix(keys.TOMBSTONES).partition("/")[0])
    workload_id = WorkloadId(_name(key))
    memory.cluster.drop_tombstone(node_id, workload_id)
    memory.cluster.update_reservations(workload_id, (node_id,))


def put_drift(memory: Memory, drift: Drift) -> None:
    memory.cluster.drifts.put(drift)
    if drift.type is DriftType.ORPHAN:
        memory.cluster.unassigned_copies.stand_in(drift)


def drop_drift(memory: Memory, key: str) -> None:
    cluster = memory.cluster
    node, _, rest = key.removeprefix(keys.DRIFTS).partition("/")
    workload, _, kind = rest.partition("/")
    for drift in cluster.drifts.of(NodeId(node), WorkloadId(workload)):
        if drift.type == kind:
            cluster.drifts.drop(drift)
            cluster.unassigned_copies.drop(drift.node_id, drift.workload_id)


def rebuilt_drifts(merged: Merged, held: Iterable[Drift]) -> Iterable[Drift]:
    """The drifts of existing nodes, unless the copy is assigned or being removed there now."""
    settled = {(one.node_id, one.workload_id) for one in merged.assignments.values()}
    settled |= {(one.assignment.node_id, one.assignment.workload_id) for one in merged.tombstones}
    for drift in held:
        if drift.node_id in merged.nodes and (drift.node_id, drift.workload_id) not in settled:
            yield drift


def put_event(memory: Memory, key: str, event: Event) -> None:
    memory.cluster.events.put(NumberedEvent(keys.event_sequence(key), event))


def drop_event(memory: Memory, key: str) -> None:
    if keys.is_event(key):
        memory.cluster.events.drop(keys.event_sequence(key))


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def drop_removal(memory: Memory, key: str) -> None:
    memory.cluster.removed.drop(NodeId(_name(key)))
