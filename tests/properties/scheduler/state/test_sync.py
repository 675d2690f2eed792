"""Following the writes of another scheduler gives the same state as reading everything again."""

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from builders import NOON, a_status, a_workload, an_assignment
from persys.core.event_retention import EventLimits
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Tombstone
from persys.model.secret import Secret, SecretVersion
from persys.model.status import Drift, DriftType, Retry
from persys.scheduler.commit.versions import RecordVersions
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import follow, load
from persys.store import keys
from persys.store.port import Record, Snapshot, WatchEvent
from persys.wire.stored import records

if TYPE_CHECKING:
    from collections.abc import Mapping

NODES = ("n1", "n2", "n3")
NAMES = ("web", "db", "job")
nodes, names = st.sampled_from(NODES), st.sampled_from(NAMES)


def a_node(node_id: str, *, cpu: int, cordoned: bool) -> Node:
    return Node(NodeId(node_id), Capabilities(cpu, 8000), "h:1", NOON, cordoned=cordoned)


def status_of(name: str) -> Struct:
    workload_status = a_status()
    return type(workload_status)(WorkloadId(name), workload_status.status, NOON)


placements = st.builds(
    lambda name, node, epoch: {
        keys.workload_key(WorkloadId(name)): a_workload(name),
        keys.assignment_key(WorkloadId(name)): an_assignment(node, name=name, epoch=epoch),
        keys.status_key(WorkloadId(name)): status_of(name),
    },
    names,
    nodes,
    st.integers(1, 9),
)
registrations = st.builds(
    lambda node, cpu, cordoned: {
        keys.node_key(NodeId(node)): a_node(node, cpu=cpu, cordoned=cordoned)
    },
    nodes,
    st.integers(1000, 9000),
    st.booleans(),
)
burials = st.builds(
    lambda name, node: {
        keys.tombstone_key(NodeId(node), WorkloadId(name)): Tombstone(
            an_assignment(node, name=name), NOON
        )
    },
    names,
    nodes,
)
retries = st.builds(
    lambda name: {
        keys.workload_key(WorkloadId(name)): a_workload(name),
        keys.retry_key(WorkloadId(name)): Retry(WorkloadId(name), Revision("r1"), 1, None),
    },
    names,
)
drifts = st.builds(
    lambda name, node, kind: {
        keys.drift_key(NodeId(node), WorkloadId(name), kind): Drift(
            NodeId(node), WorkloadId(name), kind, NOON
        )
    },
    names,
    nodes,
    st.sampled_from([DriftType.STATE, DriftType.MISSING]),
)
secrets = st.builds(
    lambda name, number: {
        keys.secret_key(name): Secret(name, (SecretVersion(number, b"", "key", NOON),))
    },
    names,
    st.integers(1, 9),
)
writes = st.one_of(placements, registrations, burials, retries, drifts, secrets)


def deleted_with(name: str, stored: "Mapping[str, object]") -> list[str]:
    workload_id = WorkloadId(name)
    all_of_it = (
        keys.workload_key(workload_id),
        keys.assignment_key(workload_id),
        keys.status_key(workload_id),
        keys.retry_key(workload_id),
        keys.secret_key(name),
    )
    return [key for key in all_of_it if key in stored]


def shown(cluster: ClusterState) -> object:
    return (
        {
            name: (entry.workload, entry.assignment, entry.workload_status, entry.retry)
            for name, entry in cluster.workloads.items()
        },
        {node_id: member.node for node_id, member in cluster.nodes.items()},
        {node_id: held for node_id, held in cluster.tombstones.items() if held},
        {node_id: held for node_id, held in cluster.on_node.items() if held},
        list(cluster.drifts),
        cluster.secrets,
        {
            node_id: (slot.free, slot.count, slot.closed, dict(slot.ports))
            for node_id, slot in cluster.node_index.slots.items()
        },
    )


@given(st.lists(st.one_of(writes, names), max_size=25))
def test_following_the_store_gives_the_same_state_as_a_reload(
    history: list[dict[str, Struct] | str],
) -> None:
    stored: dict[str, tuple[bytes, int]] = {}
    followed, read = ClusterState(), ClusterState()
    written, received = RecordVersions(EventLimits()), RecordVersions(EventLimits())

    for revision, step in enumerate(history, 1):
        if isinstance(step, str):
            changes = [WatchEvent(key, None, revision) for key in deleted_with(step, stored)]
        else:
            changes = [WatchEvent(k, records.encode(v), revision) for k, v in step.items()]
        for change in changes:
            if change.value is None:
                stored.pop(change.key)
            else:
                stored[change.key] = (change.value, change.version)
        follow(followed, changes, lease_until=1.0, now=NOON)
        written.follow(changes)
    found = (Record(key, *stored[key]) for key in sorted(stored))
    snapshot = Snapshot(len(history), tuple(found))
    load(read, snapshot, lease_until=1.0, now=NOON)
    received.set_versions(snapshot)

    assert shown(followed) == shown(read)
    assert written.versions == received.versions
