"""Samples the utilization of the host and the usage of each workload.

If a file system or a runtime does not respond, its last samples stay valid.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

import structlog
from msgspec import Struct

from persys.agent.journal.store import Journal
from persys.agent.node import host
from persys.agent.ports import Host
from persys.core.agent.admission import demand_of
from persys.core.agent.report import UsageSample, usage_of
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.node import NodeUsage, WorkloadUsage
from persys.model.workload import Desired

log = structlog.get_logger()

HOST_INTERVAL_SECONDS = 5.0
USAGE_INTERVAL_SECONDS = 10.0
# After the first sample of a new workload, so that its usage is available soon.
FIRST_INTERVAL_SECONDS = 2.0
SAMPLE_DEADLINE_SECONDS = 60.0


class Utilization(Struct, frozen=True):
    """Percent."""

    cpu: float
    memory: float
    disk: float


class UtilizationSampler:
    """Samples CPU, memory and disk utilization of the host."""

    def __init__(
        self, journal: Journal, volume_root: Path, paths: PathCalls, host: Host = host
    ) -> None:
        self._journal = journal
        self._volume_root = volume_root
        self._paths = paths
        self._host = host
        self._disk = host.disk(volume_root)
        self._disk_answers = True
        self._last = host.cpu_time()
        self._cpu_share = 0.0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(HOST_INTERVAL_SECONDS)
            now = self._host.cpu_time()
            self._cpu_share = now.busy_since(self._last)
            self._last = now
            await self._sample_disk()

    async def _sample_disk(self) -> None:
        """Sample the volume file system. If it does not respond, the last sample stays valid."""
        sample = partial(self._host.disk, self._volume_root)
        try:
            self._disk = await self._paths.run(self._volume_root, sample)
        except (OSError, PathTimeoutError) as err:
            if self._disk_answers:
                log.warning("volumes.not_looked_at", path=str(self._volume_root), reason=str(err))
            self._disk_answers = False
        else:
            self._disk_answers = True

    def utilization(self) -> Utilization:
        memory = self._host.memory()
        return Utilization(
            cpu=100 * self._cpu_share,
            memory=100 * memory.used_mb / memory.total_mb,
            disk=100 * self._disk.used_share,
        )

    def usage(self) -> NodeUsage:
        """Usage of the node. A stopped workload still counts with its disk, not with CPU and memory."""
        orders = [entry.order for entry in self._journal.entries.values()]
        running = [demand_of(one.spec) for one in orders if one.desired is Desired.RUNNING]
        return NodeUsage(
            cpu_allocated_millicores=sum(demand.cpu_millicores for demand in running),
            cpu_used_millicores=round(self._cpu_share * self._host.cpu_millicores()),
            memory_allocated_mb=sum(demand.memory_mb for demand in running),
            memory_used_mb=self._host.memory().used_mb,
            disk_allocated_gb=sum(demand_of(one.spec).disk_gb for one in orders),
            disk_used_gb=self._disk.used_gb,
        )


class Sampler(Protocol):
    async def sample(self) -> list[UsageSample]:
        """One sample of all running workloads. Raises RuntimeUnavailableError."""


class WorkloadUsageSampler:
    """Samples the resource usage of each workload."""

    def __init__(
        self,
        samplers: Mapping[str, Sampler],
        journal: Journal,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        """`samplers` by the source name in reports. Each samples a different set of workloads."""
        self._samplers = samplers
        self._journal = journal
        self._clock = clock
        self._supervisor = supervisor
        self._last: dict[str, dict[str, UsageSample]] = {}
        self._usage_by_source: dict[str, dict[WorkloadId, WorkloadUsage]] = {}
        self.usage: dict[WorkloadId, WorkloadUsage] = {}

    async def run(self) -> None:
        while True:
            is_new = await self._sample()
            await asyncio.sleep(FIRST_INTERVAL_SECONDS if is_new else USAGE_INTERVAL_SECONDS)

    async def _sample(self) -> bool:
        """Take samples. Returns whether a workload is new, or may appear soon."""
        if not self._journal.entries:
            self._last, self._usage_by_source, self.usage = {}, {}, {}
            return True
        is_new = [await self._contained(source) for source in list(self._samplers)]
        self.usage = {
            workload_id: used
            for usage in self._usage_by_source.values()
            for workload_id, used in usage.items()
        }
        return any(is_new)

    async def _contained(self, source: str) -> bool:
        with self._supervisor.contain("usage", source, failed=lambda _error: None):
            is_new = await self._sample_from(source)
            self._supervisor.resolved("usage", source)
            return is_new
        return False

    async def _sample_from(self, source: str) -> bool:
        try:
            async with asyncio.timeout(SAMPLE_DEADLINE_SECONDS):
                samples = await self._samplers[source].sample()
        except (RuntimeUnavailableError, TimeoutError):
            return False
        entries = self._journal.entries
        before = self._last.get(source, {})
        self._usage_by_source[source] = usage_of(
            before,
            samples,
            types={workload_id: entry.order.type for workload_id, entry in entries.items()},
            collected_at=self._clock.now(),
            source=source,
        )
        self._last[source] = {one.container_id: one for one in samples}
        return bool(self._last[source].keys() - before.keys())
