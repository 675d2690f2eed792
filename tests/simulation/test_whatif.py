"""What-if analysis of a node loss and of new workloads, from a snapshot of a cluster."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from builders import NOON, a_status, a_workload, an_assignment
from persys.core.placement.requirements import requirements_of
from persys.errors import NotFoundError
from persys.model import feature
from persys.model.cluster import ClusterMarker
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node, StoragePool
from persys.model.placement import Resources
from persys.model.spec import ContainerSpec, ManagedVolume, WorkloadType
from persys.model.status import Status
from persys.sim.whatif import add, lose
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.stored import records
from persys.wire.stored.snapshot import FORMAT, Header, write

DATA = ContainerSpec("db", managed_volumes=(ManagedVolume("data", size_gb=1),))
BIG = Resources(2500, 128)


def a_node(name: str) -> Node:
    capabilities = Capabilities(
        4000,
        8192,
        pools=(StoragePool("local", total_gb=10),),
        types=frozenset({WorkloadType.CONTAINER}),
        storage_drivers=frozenset({"local"}),
        features=frozenset({feature.PUSHES_STATUS}),
    )
    return Node(NodeId(name), capabilities, f"127.0.0.1:{name[1:]}", NOON)


def stored() -> Iterator[tuple[str, Struct]]:
    """n1 has a workload without data, one with data and a large one; n2 has little free capacity."""
    yield keys.CLUSTER, ClusterMarker("u1", NOON)
    for name in ("n1", "n2"):
        yield keys.node_key(NodeId(name)), a_node(name)
    for name, node, spec, size in (
        ("web", "n1", ContainerSpec("nginx"), Resources(100, 128)),
        ("db", "n1", DATA, Resources(100, 128)),
        ("big", "n1", ContainerSpec("nginx"), BIG),
        ("other", "n2", ContainerSpec("nginx"), BIG),
    ):
        workload = a_workload(name, spec=spec, resources=size)
        yield keys.workload_key(workload.id), workload
        reserved = requirements_of(workload).resources
        yield keys.assignment_key(workload.id), an_assignment(node, name=name, reserved=reserved)
        status = replace(a_status(Status.RUNNING), workload_id=workload.id)
        yield keys.status_key(workload.id), status


@pytest.fixture
def contents() -> list[tuple[str, bytes]]:
    return [(key, records.encode(record)) for key, record in stored()]


def test_after_a_node_loss_workloads_move_wait_or_stay_with_their_data(
    contents: list[tuple[str, bytes]],
) -> None:
    moves = {str(outcome.workload_id): outcome for outcome in lose(contents, NodeId("n1"))}

    assert (moves["web"].before, moves["web"].after) == ("n1", "n2")
    assert moves["db"].after == "n1"
    assert "holds the workload's data" in moves["db"].why
    assert "short of cpu" in moves["big"].why
    assert "other" not in moves


def test_losing_an_unknown_node_is_an_error(contents: list[tuple[str, bytes]]) -> None:
    with pytest.raises(NotFoundError):
        lose(contents, NodeId("n9"))


def test_new_workloads_are_placed_or_pending_with_the_reason(
    contents: list[tuple[str, bytes]],
) -> None:
    spec = control_pb2.WorkloadSpec(
        type="container",
        resources=control_pb2.ResourceRequirements(cpu_millicores=500, memory_mb=64),
        container=control_pb2.ContainerSpec(image="nginx"),
    )
    requests = [
        control_pb2.ApplyWorkloadRequest(workload_id=f"new-{number}", spec=spec)
        for number in range(10)
    ]

    moves, refused = add(contents, requests)

    placed = [outcome.after for outcome in moves if outcome.after]
    assert sorted(placed) == ["n1", "n1", "n2", "n2", "n2"]
    assert all("short of cpu" in outcome.why for outcome in moves if not outcome.after)
    assert (len(moves), refused) == (10, [])


def test_the_command_answers_from_a_snapshot_file(
    contents: list[tuple[str, bytes]], tmp_path: Path
) -> None:
    header = Header(FORMAT, "u1", NOON, 1, "store", {})
    path = tmp_path / "cluster.snap"
    path.write_bytes(b"".join(write(header, contents)))

    result = subprocess.run(
        [sys.executable, "-m", "persys.cli.persys", "sim", "--snapshot", path, "--lose", "n1"],
        capture_output=True,
        text=True,
        timeout=3000,  # on a machine that is busy with other tests
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("loss of n1: 1 workloads move, 2 stay or are pending")
