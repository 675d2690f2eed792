"""What each workload uses, looked at now and then. A runtime that gives no answer leaves the last figures."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from persys.agent.state import State
from persys.core.metering import Sample, metered
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.usage import WorkloadUsage

INTERVAL_SECONDS = 10.0
# After the first look at something new, so that its figures do not keep anybody waiting.
SOON_SECONDS = 2.0
SAMPLE_DEADLINE_SECONDS = 60.0


class Sampler(Protocol):
    async def sample(self) -> list[Sample]:
        """One look at everything that runs. Raises RuntimeUnavailableError."""


class Meter:
    def __init__(
        self,
        samplers: Mapping[str, Sampler],
        state: State,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        """`samplers` by the name under which their figures are reported. Each looks at other workloads."""
        self._samplers = samplers
        self._state = state
        self._clock = clock
        self._supervisor = supervisor
        self._last: dict[str, dict[str, Sample]] = {}
        self._told: dict[str, dict[WorkloadId, WorkloadUsage]] = {}
        self.usage: dict[WorkloadId, WorkloadUsage] = {}

    async def run(self) -> None:
        while True:
            news = await self._look()
            await asyncio.sleep(SOON_SECONDS if news else INTERVAL_SECONDS)

    async def _look(self) -> bool:
        """Whether something was seen for the first time, or may be soon."""
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
            news = await self._look_with(source)
            self._supervisor.resolved("usage", source)
            return news
        return False

    async def _look_with(self, source: str) -> bool:
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
