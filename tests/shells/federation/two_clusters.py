"""Two real schedulers, a real agent in the remote cluster, and persys-federation between them.

Only the runtime of the remote agent is in memory. All processes run in this one.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from persys.agent.journal.store import Journal
from persys.agent.tls import open_tls
from persys.federation.app import Federation, Surroundings
from persys.federation.connection import Connection, open_connection
from persys.federation.remote import RemoteCluster
from persys.federation.settings import FederationSettings
from persys.infra.aio.path_calls import DirectPathCalls
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, WorkloadId
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, ShiftedClock, a_cluster, eventually, fast_settings
from shells.scheduler.real_nodes import RealNode, real_nodes
from shells.scheduler.stores import FaultyStore

HOME, NODE = "home", "far"
CPU = 100  # millicores of a workload


@dataclass
class TwoClusters:
    home: Cluster
    remote: Cluster
    machine: RealNode  # of the remote cluster
    link: "Link"
    file: Path  # of the remote store

    def copy_of(self, name: str) -> str:
        return f"{HOME}--{name}"

    async def apply(self, name: str, **fields: Any) -> None:
        answer = await self.home.control.send(
            pb.ApplyWorkloadRequest(workload_id=name, spec=a_spec(**fields))
        )
        assert answer.success, answer

    async def run(self, name: str, **fields: Any) -> pb.WorkloadView:
        """Apply it and wait until it runs in the remote cluster."""
        await self.apply(name, **fields)
        view = await self.home.control.until(name, "Running")
        assert view.assigned_node_id == NODE
        return view

    async def back_up(self) -> None:
        await self._exchange(self.file, self.file.with_suffix(".copy"))

    async def restore(self) -> None:
        self.remote.clock.ahead += timedelta(minutes=1)
        await self._exchange(self.file.with_suffix(".copy"), self.file)

    async def _exchange(self, source: Path, target: Path) -> None:
        await self.remote.stop()
        await self.remote.store.store.close()
        shutil.copy(source, target)
        self.remote.store.store = await _open(self.file)
        await self.remote.start()

    async def until_remote_is(self, *names: str) -> None:
        """Wait until the remote cluster has exactly these copies."""
        expected = {self.copy_of(name) for name in names}

        async def holds_now() -> bool:
            return set(await self.remote.control.names()) == expected

        await eventually(holds_now, lambda: f"the remote cluster to have {expected}")


async def until_problem(home: Cluster, text: str) -> None:
    problems: list[str] = []

    async def is_shown() -> bool:
        problems[:] = (await home.control.node(NODE)).problems
        return any(text in problem for problem in problems)

    await eventually(is_shown, lambda: f"the node to have the problem {text!r}: {problems}")


async def until_healthy(home: Cluster) -> None:
    async def is_healthy() -> bool:
        return not (await home.control.node(NODE)).problems

    await eventually(is_healthy, lambda: "the node to have no problems")


class Link:
    """persys-federation, which can be stopped and started again with the same journal."""

    def __init__(
        self, settings: FederationSettings, connect: Callable[[Connection], RemoteCluster]
    ) -> None:
        self.settings = settings
        self.clock = ShiftedClock()
        self._connect = connect
        self._stack = AsyncExitStack()
        self.federation: Federation
        self.journal: Journal
        self.remote: RemoteCluster

    async def start(self) -> None:
        settings, self._stack = self.settings, AsyncExitStack()
        connection = open_connection(settings)
        self._stack.callback(connection.close)
        self.remote = self._connect(connection)
        self._stack.callback(self.remote.close)
        self.journal = Journal(settings.state_path, cluster_id=HOME, node_id=NodeId(NODE))
        self._stack.callback(self.journal.close)
        tls = open_tls(settings.agent(), self.clock)
        around = Surroundings(self.journal, self.clock, DirectPathCalls(), Random(1), "b1", tls=tls)
        self.federation = Federation(settings, NodeId(NODE), self.remote, around)
        stop = asyncio.Event()
        running = asyncio.get_running_loop().create_task(self.federation.run(stop))

        async def end() -> None:
            stop.set()
            await running

        self._stack.push_async_callback(end)

    async def stop(self) -> None:
        await self._stack.aclose()

    def metric(self, name: str, **labels: str) -> float:
        return self.federation.agent.registry.get_sample_value(name, labels) or 0.0


def a_spec(
    *,
    image: str = "nginx",
    cpu: int = CPU,
    env: dict[str, str] | None = None,
    offload: str = "prefer",
    stop_after: int = 0,
    data: bool = False,
) -> pb.WorkloadSpec:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=16),
        container=pb.ContainerSpec(image=image, env=env),
        placement=pb.PlacementRules(offload=offload, offload_data=data),
        stop_after_seconds=stop_after,
    )
    if data:
        spec.container.managed_volumes.add(name="data", driver="local", mount_path="/data")
    return spec


async def _open(file: Path) -> SqliteStore:
    return await SqliteStore.open(file, monotonic=SystemClock().monotonic)


@asynccontextmanager
async def two_clusters(
    directory: Path,
    *,
    home: dict[str, Any] | None = None,
    remote: dict[str, Any] | None = None,
    connect: Callable[[Connection], RemoteCluster] = RemoteCluster,
) -> AsyncIterator[TwoClusters]:
    """`home` and `remote`: settings of the schedulers."""
    async with AsyncExitStack() as stack:
        started = []
        changed = {"home": {"cluster_id": HOME, **(home or {})}, "remote": remote or {}}
        for name, changes in changed.items():
            file = directory / f"{name}.db"
            store = FaultyStore(await _open(file))
            keys = {"secrets_key_file": str(directory / f"{name}.key")}
            settings = fast_settings(**{**keys, **changes})
            started.append(await stack.enter_async_context(a_cluster(store, settings)))
        at_home, far = started
        (machine,) = await stack.enter_async_context(
            real_nodes(directory, far.settings.grpc_port, "machine")
        )
        await until_registered(far)
        link = Link(federation_settings(directory, at_home, far, insecure=True), connect)
        await link.start()
        stack.push_async_callback(link.stop)
        both = TwoClusters(at_home, far, machine, link, directory / "remote.db")
        await until_registered(at_home)
        yield both


def federation_settings(
    directory: Path, home: Cluster, target: Cluster, **changes: Any
) -> FederationSettings:
    brisk = FederationSettings(
        remote=f"127.0.0.1:{target.settings.grpc_port}",
        node_id=NODE,
        cluster_id=HOME,
        scheduler_addr=(f"127.0.0.1:{home.settings.grpc_port}",),
        grpc_addr="127.0.0.1",
        grpc_port=0,
        metrics_port=0,
        state_path=directory / "federation.db",
        reconcile_interval=timedelta(seconds=1),
        gc_interval=timedelta(seconds=0.3),
        gc_zombie_after=timedelta(seconds=0.1),
    )
    return replace(brisk, **changes)


async def until_registered(home: Cluster) -> None:
    async def is_registered() -> bool:
        nodes = (await home.control.stub.ListNodes(pb.ListNodesRequest(), timeout=10)).nodes
        return any(node.status == "Ready" and not node.problems for node in nodes)

    await eventually(is_registered, lambda: "the node to be ready")


def holds(machine: RealNode, name: str) -> bool:
    return WorkloadId(f"{HOME}--{name}") in machine.runtime.artefacts
