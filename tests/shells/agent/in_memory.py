"""A whole agent in this process: its own journal, and a runtime in memory instead of Docker."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from persys.agent.api.service import AgentApi
from persys.agent.api.tunnel_server import TunnelContext
from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.journal.store import Journal
from persys.agent.node import host
from persys.agent.ports import Host, PullWatch, Runtime, Volumes
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.settings import AgentSettings
from persys.agent.uplink.link import Connect
from persys.agent.workloads.steps import StepDeadlines
from persys.core.agent.progress import Artefact, Condition, Step
from persys.infra.aio.path_calls import DirectPathCalls, PathCalls
from persys.infra.clock import SystemClock
from persys.infra.process import serve
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import VolumeView
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Failure
from persys.model.workload import Order
from persys.wire.gen.agent.v1 import agent_pb2

DEADLINE_SECONDS = 30.0
BRISK = StepDeadlines(inspect=0.5, log_tail=0.5, steps=dict.fromkeys(Step, 0.5))


class MemoryRuntime:
    """Implements agent.ports.Runtime."""

    def __init__(self) -> None:
        self.artefacts: dict[WorkloadId, Artefact] = {}
        self.pull_failure: Failure | None = None
        self._number = 0

    async def inspect(self, order: Order) -> Artefact | None:
        return self.artefacts.get(order.workload_id)

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        return self.pull_failure

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        self._number += 1
        self.artefacts[order.workload_id] = Artefact(
            f"c{self._number}", order.workload_id, Condition.CREATED, order.revision
        )
        return None

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        at = datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self._number)
        self._set(artefact, condition=Condition.RUNNING, started_at=at)
        return None

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        self._set(artefact, condition=Condition.EXITED)
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        self.artefacts.pop(WorkloadId(artefact.name), None)
        return None

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        self._set(artefact, deviations=())
        return None

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        return await self.remove(order, artefact)

    async def discard(self, order: Order) -> Failure | None:
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        return "its log"

    async def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        yield None
        await asyncio.Event().wait()

    async def ping(self) -> None: ...

    def _set(self, artefact: Artefact, **changes: Any) -> None:
        self.artefacts[WorkloadId(artefact.name)] = msgspec.structs.replace(artefact, **changes)


class NoVolumes:
    """Implements agent.ports.Volumes for workloads without any."""

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset({"local"})

    async def check(self, order: Order) -> None: ...

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        return Path("/nowhere")

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        return Path("/nowhere")

    async def prepare(self, order: Order) -> Failure | None:
        return None

    async def release(self, workload_id: WorkloadId) -> None: ...

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        return None

    async def inventory(self) -> list[VolumeView]:
        return []

    async def delete(self, workload_id: WorkloadId, name: str) -> None: ...


@dataclass
class Node:
    """The environment of the agent. A test replaces the part that must fail."""

    directory: Path
    runtime: Runtime = field(default_factory=MemoryRuntime)
    volumes: Volumes = field(default_factory=NoVolumes)
    host: Host = host
    paths: PathCalls = field(default_factory=DirectPathCalls)
    journal_thread: Executor | None = None
    more: NodeRuntimes = field(default_factory=NodeRuntimes)
    connect: Connect | None = None  # to a scheduler
    settings: AgentSettings = field(
        default_factory=lambda: replace(
            AgentSettings(),
            standalone=True,
            insecure=True,
            reconcile_interval=timedelta(seconds=0.2),
            admission_cpu_percent=1000,
            admission_memory_percent=1000,
            admission_disk_percent=1000,
        )
    )


class RunningAgent:
    """A running agent and its API."""

    def __init__(self, agent: Agent, journal: Journal, serving: "asyncio.Task[None]") -> None:
        self.agent = agent
        self.journal = journal
        self.serving = serving
        self.api: AgentApi = agent.api

    @property
    def errors(self) -> list[str]:
        return [f"{error.where}: {error.text}" for error in self.agent.supervisor.recent()]

    async def apply(
        self, name: str, *, binds: tuple[str, ...] = (), revision: str = "r1", epoch: int = 0
    ) -> Any:
        container = agent_pb2.ContainerSpec(image="app:1")
        for path in binds:
            container.volumes.add(host_path=path, container_path="/x", read_only=True)
        request = agent_pb2.ApplyWorkloadRequest(
            id=name,
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            revision_id=revision,
            desired_state=agent_pb2.DESIRED_STATE_RUNNING,
            spec=agent_pb2.WorkloadSpec(container=container),
            epoch=epoch,
        )
        return await self.call(self.api.ApplyWorkload(request, a_context()))

    async def delete(self, name: str) -> Any:
        request = agent_pb2.DeleteWorkloadRequest(id=name)
        return await self.call(self.api.DeleteWorkload(request, a_context()))

    async def call(self, answer: Any) -> Any:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await answer

    def status(self, name: str) -> Actual | None:
        entry = self.journal.entries.get(WorkloadId(name))
        return entry.status.actual if entry is not None else None

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        while not holds():
            assert not self.serving.done(), f"the agent has ended: {self.serving}"
            assert asyncio.get_running_loop().time() < deadline, f"not in time: {what}"
            await asyncio.sleep(0.01)

    async def until_async(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
        while not await holds():
            assert asyncio.get_running_loop().time() < deadline, f"not in time: {what}"
            await asyncio.sleep(0.02)

    async def until_idle(self) -> None:
        """No call is in progress."""
        await self.until(lambda: self.api.owned.count == 0, "all calls are finished")

    async def until_actual(self, name: str, *actual: Actual | None) -> None:
        await self.until(lambda: self.status(name) in actual, f"{name} is {actual}")


def a_context() -> Any:
    async def write(_message: object) -> None: ...

    return TunnelContext({}, write)


@asynccontextmanager
async def a_running_agent(node: Node) -> AsyncIterator[RunningAgent]:
    settings = replace(node.settings, storage_local_root=node.directory)
    node_id = NodeId(settings.node_id or "n1")
    journal = Journal(
        node.directory / "state.db",
        cluster_id="default",
        node_id=node_id,
        thread=node.journal_thread,
    )
    node.more.types[WorkloadType.CONTAINER] = node.runtime
    environment = Environment(
        journal=journal,
        runtimes=node.more,
        volumes=node.volumes,
        host=node.host,
        clock=SystemClock(),
        paths=node.paths,
        connect=node.connect,
        random=Random(1),
        boot_id="b1",
        deadlines=BRISK,
    )
    agent = Agent(settings, node_id, environment)
    try:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve(agent.parts(1), asyncio.Event()))
            await asyncio.sleep(0.05)
            yield RunningAgent(agent, journal, serving)
            serving.cancel()
    finally:
        journal.close()
