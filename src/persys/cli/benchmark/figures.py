"""The measurements of `persys bench`, each with its floor: the same work without Persys.

Rounds of a measurement and of its floor alternate, so that other load on the machine affects both.
"""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import sleep

from persys.cli.benchmark.local_cluster import BareDocker, local_cluster
from persys.cli.local.demo import IMAGE
from persys.client.scheduler import SchedulerClient
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, place
from persys.errors import NotFoundError
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb

NODE_COUNTS = (10, 100, 1_000, 10_000)
_DECISIONS = 1_000
_APPLIES = 200
_CONTAINERS = 7
_BEST_OF = 3
_RECORD_BYTES = 1_000  # what one apply writes
_POLL_SECONDS = 0.005
_TRAITS = frozenset({"type:container"})

_monotonic = SystemClock().monotonic


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds of one operation, and of its floor."""

    name: str
    floor_name: str
    seconds: float
    floor_seconds: float

    @property
    def ratio(self) -> float:
        return self.seconds / self.floor_seconds


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure by the number of nodes."""

    name: str
    floor_name: str
    points: tuple[tuple[int, Figure], ...]

    @property
    def growth(self) -> float:
        """The cost at the largest number of nodes over the cost at the smallest."""
        return self.points[-1][1].seconds / self.points[0][1].seconds


def placement() -> Curve:
    """A placement decision. Its floor is a search through the list of all nodes for the smallest number."""
    name, floor_name = "placement decision", "min() over one number per node"
    points = []
    for count in NODE_COUNTS:
        taken, scanned = [], []
        for _ in range(_BEST_OF):
            taken.append(_decision_seconds(count))
            scanned.append(_scan_seconds(count))
        figure = Figure(f"{name}, {count:,} nodes", floor_name, min(taken), min(scanned))
        points.append((count, figure))
    return Curve(name, floor_name, tuple(points))


def _decision_seconds(node_count: int) -> float:
    index = NodeIndex()
    room = Resources(64_000, 256_000, 500)
    for number in range(node_count):
        index.put_node(NodeId(f"node-{number:05d}"), allocatable=room, traits=_TRAITS)
    needs = Requirements(Resources(100, 64), _TRAITS)
    began = _monotonic()
    for number in range(_DECISIONS):
        chosen = place(needs, index)
        assert isinstance(chosen, Placed), "all nodes have room"
        index.hold(WorkloadId(f"w{number}"), chosen.node_id, needs.resources, needs.host_ports)
    return (_monotonic() - began) / _DECISIONS


def _scan_seconds(node_count: int) -> float:
    ranks = [float(number % 997) for number in range(node_count)]
    rounds = max(1, 1_000_000 // node_count)
    began = _monotonic()
    for _ in range(rounds):
        min(ranks)
    return (_monotonic() - began) / rounds


def applied() -> Figure:
    """A durable apply, one after another. Its floor is a durable write of as many bytes by the same store."""
    with tempfile.TemporaryDirectory(prefix="persys-bench-") as directory:
        floor = asyncio.run(_commit_seconds(Path(directory) / "floor.db"))
    with local_cluster(with_agent=False) as client:
        taken = [_timed(partial(_apply, client, f"bench-{number}")) for number in range(_APPLIES)]
    return Figure("apply, stored", "one durable SQLite transaction", median(taken), floor)


async def _commit_seconds(path: Path) -> float:
    store = await SqliteStore.open(path, monotonic=_monotonic)
    try:
        taken = []
        for number in range(_APPLIES):
            unit = Unit(puts={f"/bench/{number}": b"x" * _RECORD_BYTES})
            began = _monotonic()
            await store.commit([unit])
            taken.append(_monotonic() - began)
        return median(taken)
    finally:
        await store.close()


def container() -> Figure:
    """From apply to Running. Its floor is create and start on the socket of Docker. Raises SetupError."""
    docker = BareDocker()
    taken, bare = [], []
    with local_cluster(with_agent=True) as client:
        for number in range(_CONTAINERS):
            bare.append(_bare_container(docker, f"persys-bench-bare-{number}"))
            name = f"bench-{number}"
            taken.append(_timed(partial(_run, client, name)))
            _delete(client, name)
    return Figure(
        "container, apply to Running", "docker create and start", median(taken), median(bare)
    )


def _bare_container(docker: BareDocker, name: str) -> float:
    body = {
        "Image": IMAGE,
        "Cmd": ["sleep", "600"],
        "HostConfig": {"Init": True, "Memory": 32 << 20, "PidsLimit": 64},
    }
    began = _monotonic()
    container_id = docker.call("POST", f"/containers/create?name={name}", body)["Id"]
    try:
        docker.call("POST", f"/containers/{container_id}/start")
        return _monotonic() - began
    finally:
        docker.call("DELETE", f"/containers/{container_id}?force=1")


def _run(client: SchedulerClient, name: str) -> None:
    _apply(client, name)
    while client.get_workload(name).status != "Running":
        sleep(_POLL_SECONDS)


def _delete(client: SchedulerClient, name: str) -> None:
    client.delete(name)
    try:
        while True:
            client.get_workload(name)
            sleep(_POLL_SECONDS)
    except NotFoundError:
        return


def _apply(client: SchedulerClient, name: str) -> None:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=10, memory_mb=32),
        container=pb.ContainerSpec(image=IMAGE, command=["sleep", "600"], init=True, pids_max=64),
    )
    client.apply(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))


def _timed(work: Callable[[], object]) -> float:
    began = _monotonic()
    work()
    return _monotonic() - began
