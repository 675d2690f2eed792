"""Records that are loaded together share their equal parts."""

from datetime import UTC, datetime

from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Assignment, Resources
from persys.model.spec import ContainerSpec
from persys.model.workload import Workload
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import load
from persys.store import keys
from persys.store.port import Record, Snapshot
from persys.wire.stored import records

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def loaded(*stored: Workload | Assignment) -> ClusterState:
    found = {
        keys.workload_key(one.id)
        if isinstance(one, Workload)
        else keys.assignment_key(one.workload_id): records.encode(one)
        for one in stored
    }
    cluster = ClusterState()
    snapshot = Snapshot(1, [Record(key, found[key], 1) for key in sorted(found)])
    load(cluster, snapshot, lease_until=0.0, now=NOON)
    return cluster


def a_workload(name: str, image: str, revision: str = "r1") -> Workload:
    spec = ContainerSpec(image, env={"A": "1"})
    resources = Resources(100, 64)
    return Workload(WorkloadId(name), spec, Revision(revision), NOON, NOON, resources=resources)


def test_equal_workloads_have_one_spec_in_memory() -> None:
    cluster = loaded(a_workload("a", "web:1"), a_workload("b", "web:1"))

    first, second = (entry.workload for entry in cluster.workloads.values())
    assert first.spec is second.spec
    assert first.resources is second.resources


def test_a_workload_with_the_same_revision_and_another_spec_keeps_its_own() -> None:
    cluster = loaded(a_workload("a", "web:1"), a_workload("b", "web:2"))

    images = [entry.workload.spec for entry in cluster.workloads.values()]
    assert [spec.image for spec in images if isinstance(spec, ContainerSpec)] == ["web:1", "web:2"]


def test_the_id_of_a_workload_is_in_memory_once() -> None:
    assignment = Assignment(WorkloadId("a"), NodeId("n1"), 1, NOON)

    entry = loaded(a_workload("a", "web:1"), assignment).workloads[WorkloadId("a")]

    assert entry.assignment is not None
    assert entry.assignment.workload_id is entry.workload.id
