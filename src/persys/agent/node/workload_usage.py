"""Samples the resource usage of each workload. If a runtime does not respond, the last samples stay."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from persys.agent.journal.store import State
from persys.core.agent.usage import Sample, metered
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.node import WorkloadUsage

INTERVAL_SECONDS = 10.0
# After the first sample of a new workload, so that its usage is available soon.
SOON_SECONDS = 2.0
SAMPLE_DEADLINE_SECONDS = 60.0


class Sampler(Protocol):
    async def sample(self) -> list[Sample]:
        """One sample of all running workloads. Raises RuntimeUnavailableError."""


class Meter:
    def __init__(
        self,
        samplers: Mapping[str, Sampler],
        state: State,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        """`samplers` by the source name in reports. Each samples a different set of workloads."""
        self._samplers = samplers
        self._state = state
        self._clock = clock
        self._supervisor = supervisor
        self._last: dict[str, dict[str, Sample]] = {}
        self._told: dict[str, dict[WorkloadId, WorkloadUsage]] = {}
        self.usage: dict[WorkloadId, WorkloadUsage] = {}

    async def run(self) -> None:
        while True:
            news = await self._sample()
            await asyncio.sleep(SOON_SECONDS if news else INTERVAL_SECONDS)

    async def _sample(self) -> bool:
        """Take samples. Returns whether a workload is new, or may appear soon."""
        if not self._state.entries:
            self._last, self._told, self.usage = {}, {}, {}
            return True
        news = [await self._contained(source) for source in list(self._samplers)]
        self.usage = {
            workload_id: used for told in self._told.values() for workload_id, used in told.items()
        }
        return any(news)

    async def _contained(self, source: str) -> bool:
        with self._supervisor.contain("usage", source, failed=lambda _error: None):
            news = await self._sample_from(source)
            self._supervisor.resolved("usage", source)
            return news
        return False

    async def _sample_from(self, source: str) -> bool:
        try:
            async with asyncio.timeout(SAMPLE_DEADLINE_SECONDS):
                samples = await self._samplers[source].sample()
        except (RuntimeUnavailableError, TimeoutError):
            return False
        entries = self._state.entries
        before = self._last.get(source, {})
        self._told[source] = metered(
            before,
            samples,
            types={workload_id: entry.order.type for workload_id, entry in entries.items()},
            collected_at=self._clock.now(),
            source=source,
        )
        self._last[source] = {one.container_id: one for one in samples}
        return bool(self._last[source].keys() - before.keys())
