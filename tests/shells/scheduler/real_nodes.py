"""Real agents in this process, with a runtime in memory, that join a scheduler over a control stream."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from persys.agent.settings import AgentSettings
from persys.model.ids import WorkloadId
from persys.model.workload import Order
from shells.agent.in_memory import MemoryRuntime, Node, RunningAgent, a_running_agent


class CountingRuntime(MemoryRuntime):
    """Also records everything that was ever created, so that a second copy is detected."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[WorkloadId] = []

    async def create(self, order: Order, volumes: object) -> None:
        self.created.append(order.workload_id)
        await super().create(order, {})


@dataclass
class RealNode:
    """A machine with its runtime and journal, on which the agent may run or not."""

    node_id: str
    directory: Path
    scheduler_port: int
    runtime: CountingRuntime = field(default_factory=CountingRuntime)
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> RunningAgent:
        settings = replace(
            AgentSettings(),
            insecure=True,
            node_id=self.node_id,
            scheduler_addr=(f"127.0.0.1:{self.scheduler_port}",),
            reconcile_interval=timedelta(seconds=0.2),
            admission_cpu_percent=1000,
            admission_memory_percent=1000,
            admission_disk_percent=1000,
        )
        self.directory.mkdir(exist_ok=True)
        node = Node(self.directory, runtime=self.runtime, settings=settings)
        self._running = AsyncExitStack()
        return await self._running.enter_async_context(a_running_agent(node))

    async def stop(self) -> None:
        await self._running.aclose()

    def has(self) -> set[str]:
        return {name for name, one in self.runtime.artefacts.items() if one.active}


@asynccontextmanager
async def real_nodes(
    directory: Path, scheduler_port: int, *names: str
) -> AsyncIterator[list[RealNode]]:
    nodes = [RealNode(name, directory / name, scheduler_port) for name in names]
    try:
        for node in nodes:
            await node.start()
        yield nodes
    finally:
        for node in nodes:
            await node.stop()
