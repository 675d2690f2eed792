"""Which workloads have news for the scheduler that it was not told yet."""

import asyncio

from persys.model.ids import WorkloadId


class News:
    def __init__(self) -> None:
        self._about: set[WorkloadId] = set()
        self._some = asyncio.Event()

    def tell(self, workload_id: WorkloadId) -> None:
        self._about.add(workload_id)
        self._some.set()

    def take(self) -> set[WorkloadId]:
        about, self._about = self._about, set()
        self._some.clear()
        return about

    async def wait(self, seconds: float) -> bool:
        """True when there is some, False when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._some.wait()
        except TimeoutError:
            return False
        return True
