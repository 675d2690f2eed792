"""Changes that another scheduler wrote, taken into memory one revision at a time.

The end is the same as reading everything again, at the cost of what changed. Within one revision nothing says
in which order its records were written, so they are taken in the order in which they need each other.
"""

from collections.abc import Sequence

from persys.model.assignment import Assignment, Tombstone
from persys.model.belief import Belief, Retry
from persys.model.drift import Drift, DriftType
from persys.model.event import Event, Numbered
from persys.model.history import History
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node
from persys.model.removal import Removal
from persys.model.secret import Secret
from persys.model.token import Token
from persys.model.workload import Workload
from persys.scheduler.cluster import Cluster
from persys.store import keys
from persys.store.port import Change
from persys.wire import records


def follow(cluster: Cluster, changes: Sequence[Change], *, lease_until: float) -> list[Numbered]:
    """Take in what one revision changed. Returns the events among it, in the order of their numbers."""
    written = [change for change in changes if change.value is not None]
    gone = [change for change in changes if change.value is None]
    for change in written:
        if change.key.startswith(keys.WORKLOADS):
            cluster.put_workload(records.decode(_value(change), Workload))
        elif change.key.startswith(keys.NODES) and not keys.is_node_lease(change.key):
            node = records.decode(_value(change), Node)
            known = cluster.members.get(node.id)
            cluster.put_node(node, lease_until=known.lease_until if known else lease_until)
    for change in written:
        _put(cluster, change.key, _value(change))
    for change in gone:
        _drop(cluster, change.key)
    for change in gone:
        _drop_whole(cluster, change.key)
    return _events(written)


def _put(cluster: Cluster, key: str, value: bytes) -> None:
    if key.startswith(keys.ASSIGNMENTS):
        assignment = records.decode(value, Assignment)
        _bind(cluster, assignment.workload_id, assignment)
    elif key.startswith(keys.BELIEFS):
        belief = records.decode(value, Belief)
        if entry := cluster.entries.get(belief.workload_id):
            entry.belief = belief
    elif key.startswith(keys.RETRIES):
        retry = records.decode(value, Retry)
        if entry := cluster.entries.get(retry.workload_id):
            entry.retry = retry
    elif key.startswith(keys.HISTORIES):
        history = records.decode(value, History)
        if entry := cluster.entries.get(history.workload_id):
            entry.history = history
    elif key.startswith(keys.TOMBSTONES):
        tombstone = records.decode(value, Tombstone)
        cluster.put_tombstone(tombstone)
        buried = tombstone.assignment
        cluster.settle_room(buried.workload_id, (buried.node_id,))
    elif key.startswith(keys.TOKENS):
        token = records.decode(value, Token)
        cluster.tokens[token.id] = token
    elif key.startswith(keys.SECRETS):
        secret = records.decode(value, Secret)
        cluster.secrets[secret.name] = secret
    elif key.startswith(keys.REMOVED):
        removal = records.decode(value, Removal)
        cluster.removed[removal.node_id] = removal
    elif key.startswith(keys.DRIFTS):
        drift = records.decode(value, Drift)
        cluster.drifts.put(drift)
        if drift.type is DriftType.ORPHAN:
            cluster.strangers.stand_in(drift)


def _drop(cluster: Cluster, key: str) -> None:
    """What hangs on a workload or a node."""
    name = key.rpartition("/")[2]
    entry = cluster.entries.get(WorkloadId(name))
    if key.startswith(keys.ASSIGNMENTS):
        if entry is not None:
            _bind(cluster, entry.workload.id, None)
    elif key.startswith(keys.BELIEFS):
        if entry is not None:
            entry.belief = None
    elif key.startswith(keys.RETRIES):
        if entry is not None:
            entry.retry = None
    elif key.startswith(keys.HISTORIES):
        if entry is not None:
            entry.history = None
    elif key.startswith(keys.TOMBSTONES):
        node_id = NodeId(key.removeprefix(keys.TOMBSTONES).partition("/")[0])
        cluster.drop_tombstone(node_id, WorkloadId(name))
        cluster.settle_room(WorkloadId(name), (node_id,))
    elif key.startswith(keys.TOKENS):
        cluster.tokens.pop(name, None)
    elif key.startswith(keys.SECRETS):
        cluster.secrets.pop(name, None)
    elif key.startswith(keys.REMOVED):
        cluster.removed.pop(NodeId(name), None)
    elif key.startswith(keys.DRIFTS):
        node, workload, kind = key.removeprefix(keys.DRIFTS).split("/")
        for drift in cluster.drifts.of(NodeId(node), WorkloadId(workload)):
            if drift.type == kind:
                cluster.drifts.drop(drift)
                cluster.strangers.drop(drift.node_id, drift.workload_id)


def _drop_whole(cluster: Cluster, key: str) -> None:
    if key.startswith(keys.WORKLOADS):
        workload_id = WorkloadId(key.removeprefix(keys.WORKLOADS))
        if workload_id in cluster.entries:
            _bind(cluster, workload_id, None)
            cluster.drop_workload(workload_id)
    elif key.startswith(keys.NODES) and not keys.is_node_lease(key):
        node_id = NodeId(key.removeprefix(keys.NODES))
        if node_id in cluster.members:
            cluster.drop_node(node_id)


def _bind(cluster: Cluster, workload_id: WorkloadId, assignment: Assignment | None) -> None:
    entry = cluster.entries.get(workload_id)
    if entry is None:
        return
    nodes = {one.node_id for one in (entry.assignment, assignment) if one is not None}
    cluster.put_assignment(workload_id, assignment)
    cluster.settle_room(workload_id, nodes)


def _events(written: Sequence[Change]) -> list[Numbered]:
    found = (
        Numbered(keys.event_sequence(change.key), records.decode(_value(change), Event))
        for change in written
        if change.key.startswith(keys.EVENTS)
    )
    return sorted(found, key=lambda numbered: numbered.sequence)


def _value(change: Change) -> bytes:
    assert change.value is not None
    return change.value
