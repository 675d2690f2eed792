"""Samples CPU, memory and disk utilization of this host at a fixed interval."""

import asyncio
from functools import partial
from pathlib import Path

import structlog
from msgspec import Struct

from persys.agent.journal.store import State
from persys.agent.node import host
from persys.agent.ports import Machine
from persys.core.agent.admission import demand_of
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.model.node import NodeUsage
from persys.model.workload import Desired

log = structlog.get_logger()

SAMPLE_INTERVAL_SECONDS = 5.0


class Utilization(Struct, frozen=True):
    """Percent."""

    cpu: float
    memory: float
    disk: float


class Collector:
    def __init__(
        self, state: State, volume_root: Path, paths: PathCalls, machine: Machine = host
    ) -> None:
        self._state = state
        self._volume_root = volume_root
        self._paths = paths
        self._machine = machine
        self._disk = machine.disk(volume_root)
        self._disk_answers = True
        self._last = machine.cpu_time()
        self._cpu_share = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_INTERVAL_SECONDS)
            now = self._machine.cpu_time()
            self._cpu_share = now.busy_since(self._last)
            self._last = now
            await self._sample_disk()

    async def _sample_disk(self) -> None:
        """Sample the volume file system. If it does not respond, the last sample stays valid."""
        sample = partial(self._machine.disk, self._volume_root)
        try:
            self._disk = await self._paths.run(self._volume_root, sample)
        except (OSError, PathTimeoutError) as err:
            if self._disk_answers:
                log.warning("volumes.not_looked_at", path=str(self._volume_root), reason=str(err))
            self._disk_answers = False
        else:
            self._disk_answers = True

    def utilization(self) -> Utilization:
        memory = self._machine.memory()
        return Utilization(
            cpu=100 * self._cpu_share,
            memory=100 * memory.used_mb / memory.total_mb,
            disk=100 * self._disk.used_share,
        )

    def usage(self) -> NodeUsage:
        """Usage of the node. A stopped workload still counts with its disk, not with CPU and memory."""
        orders = [entry.order for entry in self._state.entries.values()]
        running = [demand_of(one.spec) for one in orders if one.desired is Desired.RUNNING]
        return NodeUsage(
            cpu_allocated_millicores=sum(demand.cpu_millicores for demand in running),
            cpu_used_millicores=round(self._cpu_share * self._machine.cpu_millicores()),
            memory_allocated_mb=sum(demand.memory_mb for demand in running),
            memory_used_mb=self._machine.memory().used_mb,
            disk_allocated_gb=sum(demand_of(one.spec).disk_gb for one in orders),
            disk_used_gb=self._disk.used_gb,
        )
