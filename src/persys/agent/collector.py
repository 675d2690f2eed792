"""How much of this machine is used, sampled now and then so that a share of time means something."""

import asyncio
from pathlib import Path

from msgspec import Struct

from persys.agent import host
from persys.agent.ports import Machine
from persys.agent.state import State
from persys.core.admission import demand_of
from persys.model.usage import NodeUsage
from persys.model.workload import Desired

SAMPLE_INTERVAL_SECONDS = 5.0


class Utilization(Struct, frozen=True):
    """Percent."""

    cpu: float
    memory: float
    disk: float


class Collector:
    def __init__(self, state: State, volume_root: Path, machine: Machine = host) -> None:
        self._state = state
        self._volume_root = volume_root
        self._machine = machine
        self._last = machine.cpu_time()
        self._cpu_share = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL_SECONDS)
            now = self._machine.cpu_time()
            self._cpu_share = now.busy_since(self._last)
            self._last = now

    def utilization(self) -> Utilization:
        memory = self._machine.memory()
        return Utilization(
            cpu=100 * self._cpu_share,
            memory=100 * memory.used_mb / memory.total_mb,
            disk=100 * self._machine.disk(self._volume_root).used_share,
        )

    def usage(self) -> NodeUsage:
        """What is stopped keeps its disk and gives back the rest."""
        orders = [entry.order for entry in self._state.entries.values()]
        running = [demand_of(one.spec) for one in orders if one.desired is Desired.RUNNING]
        return NodeUsage(
            cpu_allocated_millicores=sum(demand.cpu_millicores for demand in running),
            cpu_used_millicores=round(self._cpu_share * self._machine.cpu_millicores()),
            memory_allocated_mb=sum(demand.memory_mb for demand in running),
            memory_used_mb=self._machine.memory().used_mb,
            disk_allocated_gb=sum(demand_of(one.spec).disk_gb for one in orders),
            disk_used_gb=self._machine.disk(self._volume_root).used_gb,
        )
