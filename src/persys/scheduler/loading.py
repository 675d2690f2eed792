"""Stored records, read into memory: at the start, and again when nobody knows what was written."""

from persys.model.assignment import Assignment, Tombstone
from persys.model.belief import Belief, Retry
from persys.model.drift import Drift, DriftType
from persys.model.history import History
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node
from persys.model.removal import Removal
from persys.model.secret import Secret
from persys.model.token import Token
from persys.model.workload import Workload
from persys.scheduler.cluster import Cluster
from persys.store import keys
from persys.store.port import Snapshot
from persys.wire import records


def load(cluster: Cluster, snapshot: Snapshot, *, lease_until: float) -> None:
    """Make the records in memory what the snapshot says; what was seen and sent stays.

    Nodes that are new to memory get a full lease: nobody is judged before they could speak.
    """
    bound: dict[WorkloadId, Assignment] = {}
    beliefs: dict[WorkloadId, Belief] = {}
    retries: dict[WorkloadId, Retry] = {}
    histories: dict[WorkloadId, History] = {}
    workloads: dict[WorkloadId, Workload] = {}
    nodes: dict[NodeId, Node] = {}
    cluster.drifts.clear()
    cluster.tombstones.clear()
    cluster.removed.clear()
    cluster.tokens.clear()
    cluster.secrets.clear()
    for record in snapshot.records:
        if record.key.startswith(keys.WORKLOADS):
            workload = records.decode(record.value, Workload)
            workloads[workload.id] = workload
        elif record.key.startswith(keys.ASSIGNMENTS):
            assignment = records.decode(record.value, Assignment)
            bound[assignment.workload_id] = assignment
        elif record.key.startswith(keys.BELIEFS):
            belief = records.decode(record.value, Belief)
            beliefs[belief.workload_id] = belief
        elif record.key.startswith(keys.RETRIES):
            retry = records.decode(record.value, Retry)
            retries[retry.workload_id] = retry
        elif record.key.startswith(keys.HISTORIES):
            history = records.decode(record.value, History)
            histories[history.workload_id] = history
        elif record.key.startswith(keys.TOMBSTONES):
            cluster.put_tombstone(records.decode(record.value, Tombstone))
        elif record.key.startswith(keys.TOKENS):
            token = records.decode(record.value, Token)
            cluster.tokens[token.id] = token
        elif record.key.startswith(keys.SECRETS):
            secret = records.decode(record.value, Secret)
            cluster.secrets[secret.name] = secret
        elif record.key.startswith(keys.REMOVED):
            removal = records.decode(record.value, Removal)
            cluster.removed[removal.node_id] = removal
        elif record.key.startswith(keys.DRIFTS):
            drift = records.decode(record.value, Drift)
            cluster.drifts.put(drift)
            if drift.type is DriftType.ORPHAN:
                cluster.strangers.stand_in(drift)
        elif record.key.startswith(keys.NODES) and not keys.is_node_lease(record.key):
            node = records.decode(record.value, Node)
            nodes[node.id] = node
    for node_id in cluster.members.keys() - nodes.keys():
        cluster.drop_node(node_id)
    for node in nodes.values():
        known = cluster.members.get(node.id)
        cluster.put_node(node, lease_until=known.lease_until if known else lease_until)
    for workload_id in cluster.entries.keys() - workloads.keys():
        cluster.drop_workload(workload_id)
    for workload in workloads.values():
        entry = cluster.put_workload(workload)
        entry.belief = beliefs.get(workload.id)
        entry.retry = retries.get(workload.id)
        entry.history = histories.get(workload.id)
        cluster.put_assignment(workload.id, bound.get(workload.id))
    _reserve(cluster)


def _reserve(cluster: Cluster) -> None:
    for node_id in cluster.members:
        cluster.columns.give_back_all(node_id)
        for workload_id in cluster.on_node.get(node_id, set()):
            cluster.settle_room(workload_id, (node_id,))
        for workload_id in cluster.tombstones.get(node_id, {}):
            cluster.settle_room(workload_id, (node_id,))
