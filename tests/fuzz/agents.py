"""An agent in this process that serves gRPC, with runtimes in memory or with the real Docker."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import grpc

from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.images.store import ImageStore
from persys.agent.journal.store import Journal
from persys.agent.runtimes.detect import Detector, NodeRuntimes
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.settings import AgentSettings
from persys.agent.workloads.node_policy import policy_of
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import SystemClock
from persys.infra.rpc.grpc_server import new_channel
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from shells.agent.in_memory import BRISK, MemoryRuntime, Node, NoVolumes
from shells.scheduler.harness import free_ports

SERVICE = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
CANARY = "canary"  # no fuzzed request names it
SECONDS_MAX = 60.0
RUNNING = agent_pb2.ACTUAL_STATE_RUNNING


@dataclass
class RunningAgent:
    """A running agent, used through its port."""

    agent: Agent
    settings: AgentSettings
    channel: grpc.aio.Channel
    running: "asyncio.Task[None]"
    image: str

    @property
    def stub(self) -> Any:
        return agent_pb2_grpc.AgentServiceStub(self.channel)

    def order(self, name: str) -> agent_pb2.ApplyWorkloadRequest:
        container = agent_pb2.ContainerSpec(image=self.image, command=["sleep", "3600"])
        return agent_pb2.ApplyWorkloadRequest(
            id=name,
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            revision_id="r1",
            desired_state=agent_pb2.DESIRED_STATE_RUNNING,
            spec=agent_pb2.WorkloadSpec(container=container),
        )

    async def run(self, name: str) -> None:
        """Apply a workload and wait until it runs."""
        response = await self.stub.ApplyWorkload(self.order(name), timeout=20)
        assert response.applied, response
        await self.until(lambda: self.is_running(name), f"{name} to run")

    async def is_running(self, name: str) -> bool:
        request = agent_pb2.GetWorkloadStatusRequest(id=name)
        response = await self.stub.GetWorkloadStatus(request, timeout=20)
        return bool(response.status.actual_state == RUNNING)

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + SECONDS_MAX
        while not await holds():
            assert not self.running.done(), f"the agent has ended: {self.running}"
            assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
            await asyncio.sleep(0.02)

    async def check(self) -> None:
        """The canary still runs, new workloads run, and nothing unexpected was raised."""
        assert not self.running.done(), f"the agent has ended: {self.running}"
        await self.until(lambda: self.is_running(CANARY), f"{CANARY} to run")
        await self.run("after")
        deleted = await self.stub.DeleteWorkload(
            agent_pb2.DeleteWorkloadRequest(id="after"), timeout=20
        )
        assert deleted.success
        assert self.agent.supervisor.recent() == []


class NoUsers:
    """Implements agent.images.Users: no workload needs an image."""

    root = Path("/nowhere")

    def by_name(self) -> dict[str, frozenset[str]]:
        return {}

    def by_path(self) -> dict[str, frozenset[str]]:
        return {}


@asynccontextmanager
async def an_agent_in_memory(
    directory: Path, *, scheduler: str = ""
) -> AsyncIterator[RunningAgent]:
    """With `scheduler`, the agent registers there; without, it is standalone."""
    clock = SystemClock()
    settings = _settings(directory, scheduler)
    runtimes = NodeRuntimes()
    for kind in WorkloadType:
        runtimes.types[kind] = MemoryRuntime()
    runtimes.images = ImageStore(
        directory / "images",
        clock,
        ThreadPathCalls(),
        policy=policy_of(settings),
        users=NoUsers(),
        changed=lambda: None,
    )
    await runtimes.images.open()
    async with _served(directory, settings, runtimes, NodeId("n1"), "app:1") as served:
        yield served


@asynccontextmanager
async def an_agent_on_docker(directory: Path, image: str) -> AsyncIterator[RunningAgent]:
    settings = replace(_settings(directory, ""), vm_enabled=False, compose_enabled=False)
    node_id = NodeId(f"fuzz-{uuid4().hex[:8]}")
    journal = _open(directory, node_id)
    owner = OwnerLabels(settings.cluster_id, node_id)
    detector = Detector(
        settings, owner, journal, SystemClock(), ThreadPathCalls(), images_changed=lambda: None
    )
    journal.close()
    try:
        await detector.detect()
        async with _served(directory, settings, detector.found, node_id, image) as served:
            yield served
    finally:
        await detector.close()
        await asyncio.to_thread(_remove_containers, node_id)


def _remove_containers(node_id: str) -> None:
    label = f"label=persys.node_id={node_id}"
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", label], capture_output=True, text=True, check=True
    )
    if found := listed.stdout.split():
        subprocess.run(["docker", "rm", "-f", *found], capture_output=True, check=True)


def _settings(directory: Path, scheduler: str) -> AgentSettings:
    grpc_port, metrics_port = free_ports(2)
    return replace(
        Node(directory).settings,
        standalone=not scheduler,
        scheduler_addr=(scheduler,),
        grpc_addr="127.0.0.1",
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        state_path=directory / "state.db",
        storage_local_root=directory,
    )


def _open(directory: Path, node_id: NodeId) -> Journal:
    return Journal(directory / "state.db", cluster_id="default", node_id=node_id)


@asynccontextmanager
async def _served(
    directory: Path, settings: AgentSettings, runtimes: NodeRuntimes, node_id: NodeId, image: str
) -> AsyncIterator[RunningAgent]:
    journal = _open(directory, node_id)
    environment = Environment(
        journal=journal,
        runtimes=runtimes,
        volumes=NoVolumes(),
        host=Node(directory).host,
        clock=SystemClock(),
        paths=ThreadPathCalls(),
        connect=None,
        random=Random(1),
        boot_id="b1",
        deadlines=BRISK,
    )
    agent = Agent(settings, node_id, environment)
    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(agent.run(stop))
            async with new_channel(f"127.0.0.1:{settings.grpc_port}") as channel:
                served = RunningAgent(agent, settings, channel, running, image)
                await channel.channel_ready()
                yield served
            stop.set()
    finally:
        journal.close()
