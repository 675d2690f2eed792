"""A real scheduler on free ports, accessed only through its API."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import grpc

from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.scheduler.app import Scheduler
from persys.scheduler.auth.tls import agent_connector, leader_connector
from persys.scheduler.ha.forwarding import LeaderRouter
from persys.scheduler.secrets.references import SecretSource
from persys.scheduler.server import SchedulerServer
from persys.scheduler.settings import SchedulerSettings
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node, a_node

DEADLINE_SECONDS = 60.0
START_SECONDS = 240.0  # a scheduler with many records reads them first


class ShiftedClock(SystemClock):
    """Wall-clock time that a test can advance, so that it does not wait for a long back-off."""

    monotonic_ahead = 0.0  # the same for leases and deadlines

    def __init__(self) -> None:
        super().__init__(monotonic=lambda: time.monotonic() + self.monotonic_ahead)
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


def fast_settings(**changes: Any) -> SchedulerSettings:
    """Settings for tests: short intervals, and leases that outlast a busy machine."""
    seconds: dict[str, float] = {
        "heartbeat_interval": 1,
        "node_lease": 8,
        "node_unavailable_grace": 8,
        "missing_grace_period": 0.2,
        "agent_rpc_timeout": 2,
        "agent_status_poll_interval": 0.03,
        "agent_apply_timeout": 8,
        "agent_delete_timeout": 8,
        "reconcile_interval": 0.2,
        "drift_detect_interval": 0.3,
    }
    grpc_port, metrics_port = free_ports(2)
    values: dict[str, Any] = {name: timedelta(seconds=value) for name, value in seconds.items()}
    values |= {"grpc_addr": "127.0.0.1", "grpc_port": grpc_port, "metrics_port": metrics_port}
    return SchedulerSettings(**(values | changes))


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Control:
    """AgentControl as a user calls it."""

    def __init__(self, port: int, tls: Tls | None = None) -> None:
        self.channel = _secure(port, tls) if tls is not None else self._plain(port)
        self.stub: AgentControlStub = AgentControlStub(self.channel)

    def _plain(self, port: int) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(
            f"127.0.0.1:{port}",
            options=[
                ("grpc.max_send_message_length", 8 << 20),
                ("grpc.initial_reconnect_backoff_ms", 50),
                ("grpc.max_reconnect_backoff_ms", 200),
            ],
        )

    async def apply(
        self,
        name: str,
        *,
        image: str = "nginx",
        cpu: int = 100,
        memory: int = 64,
        host_port: int = 0,
        desired: str = "",
        revision: str = "",
    ) -> pb.ApplyWorkloadResponse:
        container = pb.ContainerSpec(image=image)
        if host_port:
            container.ports.add(host_port=host_port, container_port=80)
        spec = pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=memory),
            container=container,
        )
        return await self.send(
            pb.ApplyWorkloadRequest(
                workload_id=name, spec=spec, desired_state=desired, revision_id=revision
            )
        )

    async def send(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        response: pb.ApplyWorkloadResponse = await self.stub.ApplyWorkload(request, timeout=10)
        return response

    async def want(self, name: str, desired: str) -> pb.ApplyWorkloadResponse:
        return await self.send(pb.ApplyWorkloadRequest(workload_id=name, desired_state=desired))

    async def delete(self, name: str) -> pb.DeleteWorkloadResponse:
        response: pb.DeleteWorkloadResponse = await self.stub.DeleteWorkload(
            pb.DeleteWorkloadRequest(workload_id=name), timeout=10
        )
        return response

    async def retry(self, name: str) -> pb.RetryWorkloadResponse:
        response: pb.RetryWorkloadResponse = await self.stub.RetryWorkload(
            pb.RetryWorkloadRequest(workload_id=name), timeout=10
        )
        return response

    async def redeploy(self, name: str) -> pb.RedeployWorkloadResponse:
        response: pb.RedeployWorkloadResponse = await self.stub.RedeployWorkload(
            pb.RedeployWorkloadRequest(workload_id=name), timeout=10
        )
        return response

    async def workload(self, name: str) -> pb.WorkloadView:
        response = await self.stub.GetWorkload(pb.GetWorkloadRequest(workload_id=name), timeout=10)
        view: pb.WorkloadView = response.workload
        return view

    async def node(self, node_id: str) -> pb.NodeView:
        response = await self.stub.GetNode(pb.GetNodeRequest(node_id=node_id), timeout=10)
        view: pb.NodeView = response.node
        return view

    async def names(self, *, node_id: str = "", status: str = "") -> list[str]:
        request = pb.ListWorkloadsRequest(node_id=node_id, status=status)
        response = await self.stub.ListWorkloads(request, timeout=10)
        return [view.workload_id for view in response.workloads]

    async def summary(self, *, within: float = 10) -> pb.GetClusterSummaryResponse:
        response: pb.GetClusterSummaryResponse = await self.stub.GetClusterSummary(
            pb.GetClusterSummaryRequest(), timeout=within, wait_for_ready=True
        )
        return response

    async def until(
        self, name: str, status: str, *, within: float = DEADLINE_SECONDS
    ) -> pb.WorkloadView:
        """Wait until the workload has this status."""
        view = await self.workload(name)

        async def holds_now() -> bool:
            nonlocal view
            view = await self.workload(name)
            return view.status == status

        await eventually(holds_now, lambda: f"{name} to be {status}: {view}", within=within)
        return view

    async def until_gone(self, name: str, *, within: float = DEADLINE_SECONDS) -> None:
        view = pb.WorkloadView()

        async def gone() -> bool:
            nonlocal view
            try:
                view = await self.workload(name)
            except grpc.aio.AioRpcError as err:
                return err.code() is grpc.StatusCode.NOT_FOUND
            return False

        await eventually(gone, lambda: f"{name} to be gone: {view}", within=within)

    async def until_node(self, node_id: str, status: str) -> pb.NodeView:
        view = await self.node(node_id)

        async def holds_now() -> bool:
            nonlocal view
            view = await self.node(node_id)
            return view.status == status

        await eventually(holds_now, lambda: f"{node_id} to be {status}: {view}")
        return view


def _secure(port: int, tls: Tls) -> grpc.aio.Channel:
    return tls.channel(f"127.0.0.1:{port}", Role.SCHEDULER)


async def eventually(
    holds: Callable[[], Awaitable[bool]],
    what: Callable[[], str],
    *,
    within: float = DEADLINE_SECONDS,
    every: float = 0.01,
) -> None:
    """`every`: the first pause. It grows while the condition does not hold."""
    deadline = asyncio.get_running_loop().time() + within
    pause = every
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, f"waited {within} s for {what()}"
        await asyncio.sleep(pause)
        pause = min(1.2 * pause, 10 * every)


class Cluster:
    """One scheduler at a time, on one store; nodes join it and are stopped automatically."""

    def __init__(
        self,
        store: FaultyStore,
        settings: SchedulerSettings,
        stack: AsyncExitStack,
        *,
        tls: Tls | None = None,
        user: Tls | None = None,
        vault: SecretSource | None = None,
        scheduler: Callable[..., Scheduler] = Scheduler,
    ) -> None:
        """`tls`: of the scheduler, and of its user; then all connections use TLS."""
        self.store = store
        self.settings = settings
        self.clock = ShiftedClock()
        self.control = Control(settings.grpc_port, user)
        self._tls = tls
        self._vault = vault
        self._scheduler = scheduler
        self._stack = stack
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.app: Scheduler  # the parts of the scheduler that runs, or ran last

    async def start(self) -> None:
        self._stop = asyncio.Event()
        scheduler = SchedulerServer(
            self.settings,
            self.store,
            self.clock,
            tls=self._tls,
            router=LeaderRouter(leader_connector(self._tls)),
            new_replica=partial(
                self._new_app,
                connect=agent_connector(self._tls),
                connect_by_host=agent_connector(self._tls, by_host=True),
                watches_certificates=self._tls is not None,
                vault=self._vault,
            ),
        )
        self._running = asyncio.get_running_loop().create_task(scheduler.run(self._stop))
        ready = asyncio.get_running_loop().create_task(self.control.summary(within=START_SECONDS))
        await asyncio.wait([ready, self._running], return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            ready.cancel()
            await self._running
        await ready

    def _new_app(self, *args: Any, **named: Any) -> Scheduler:
        self.app = self._scheduler(*args, **named)
        return self.app

    async def stop(self) -> None:
        if self._running is not None:
            self._stop.set()
            running, self._running = self._running, None
            await running

    @property
    def has_ended(self) -> bool:
        return self._running is not None and self._running.done()

    async def ended(self) -> BaseException | None:
        """The error with which the scheduler ended on its own."""
        assert self._running is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.wait([self._running])
        running, self._running = self._running, None
        return running.exception()

    async def join(
        self,
        node_id: str = "n1",
        *,
        cpu: int = 4000,
        memory: int = 8192,
        types: tuple[str, ...] = ("container", "compose"),
    ) -> Node:
        """A ready node."""
        node = await self.prepare(node_id, cpu=cpu, memory=memory, types=types)
        await node.join()
        return node

    async def prepare(
        self,
        node_id: str = "n1",
        *,
        cpu: int = 4000,
        memory: int = 8192,
        types: tuple[str, ...] = ("container", "compose"),
        tls: Tls | None = None,
    ) -> Node:
        """A node with a running agent that has not registered. `tls`: its client identity."""
        control = Control(self.settings.grpc_port, tls) if tls is not None else self.control
        return await self._stack.enter_async_context(
            a_node(node_id, control.stub, cpu=cpu, memory=memory, types=types)
        )


@asynccontextmanager
async def a_cluster(
    store: FaultyStore,
    settings: SchedulerSettings,
    *,
    tls: Tls | None = None,
    user: Tls | None = None,
    vault: SecretSource | None = None,
    scheduler: Callable[..., Scheduler] = Scheduler,
) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(
            store, settings, stack, tls=tls, user=user, vault=vault, scheduler=scheduler
        )
        stack.push_async_callback(cluster.control.channel.close)
        stack.push_async_callback(cluster.stop)
        await cluster.start()
        yield cluster
