"""What each workload uses, looked at now and then. A runtime that gives no answer leaves the last figures."""

import asyncio
from typing import Protocol

from persys.agent.state import State
from persys.core.metering import Sample, metered
from persys.errors import RuntimeUnavailableError
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.usage import WorkloadUsage

INTERVAL_SECONDS = 10.0
# After the first look at something new, so that its figures do not keep anybody waiting.
SOON_SECONDS = 2.0


class Sampler(Protocol):
    async def sample(self) -> list[Sample]:
        """One look at everything that runs. Raises RuntimeUnavailableError."""


class Meter:
    def __init__(self, sampler: Sampler | None, state: State, clock: Clock) -> None:
        self._sampler = sampler
        self._state = state
        self._clock = clock
        self._last: dict[str, Sample] = {}
        self.usage: dict[WorkloadId, WorkloadUsage] = {}

    async def run(self) -> None:
        while True:
            news = await self._look()
            await asyncio.sleep(SOON_SECONDS if news else INTERVAL_SECONDS)

    async def _look(self) -> bool:
        """Whether something was seen for the first time, or may be soon."""
        assert self._sampler is not None, "it runs only where there is something to look with"
        if not self._state.entries:
            self._last, self.usage = {}, {}
            return True
        try:
            samples = await self._sampler.sample()
        except RuntimeUnavailableError:
            return False
        entries = self._state.entries
        self.usage = metered(
            self._last,
            samples,
            types={workload_id: entry.order.type for workload_id, entry in entries.items()},
            collected_at=self._clock.now(),
        )
        before, self._last = self._last, {one.container_id: one for one in samples}
        return bool(self._last.keys() - before.keys())
