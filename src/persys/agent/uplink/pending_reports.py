"""Changes that were not reported to the scheduler yet: of workloads, and of the node itself."""

import asyncio

from persys.model.ids import WorkloadId


class News:
    def __init__(self) -> None:
        self._changed: set[WorkloadId] = set()
        self._pending = asyncio.Event()
        self.node_changed = False

    def tell(self, workload_id: WorkloadId) -> None:
        self._changed.add(workload_id)
        self._pending.set()

    def tell_node(self) -> None:
        """The capabilities of the node changed: it registers again at once."""
        self.node_changed = True
        self._pending.set()

    def take(self) -> set[WorkloadId]:
        changed, self._changed = self._changed, set()
        self._pending.clear()
        self.node_changed = False
        return changed

    async def wait(self, seconds: float) -> bool:
        """True when there is a change to report, False after a timeout."""
        try:
            async with asyncio.timeout(seconds):
                await self._pending.wait()
        except TimeoutError:
            return False
        return True
