"""What the scheduler was not told yet: news of which workloads, and whether of the node itself."""

import asyncio

from persys.model.ids import WorkloadId


class News:
    def __init__(self) -> None:
        self._about: set[WorkloadId] = set()
        self._some = asyncio.Event()
        self.node_changed = False

    def tell(self, workload_id: WorkloadId) -> None:
        self._about.add(workload_id)
        self._some.set()

    def tell_node(self) -> None:
        """What the node has is not what it had: it registers anew at once."""
        self.node_changed = True
        self._some.set()

    def take(self) -> set[WorkloadId]:
        about, self._about = self._about, set()
        self._some.clear()
        self.node_changed = False
        return about

    async def wait(self, seconds: float) -> bool:
        """True when there is some, False when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._some.wait()
        except TimeoutError:
            return False
        return True
