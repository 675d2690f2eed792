"""The queue of workloads to inspect. A wake-up only adds a workload to the queue; the worker decides.

Wake-ups of a queued workload are merged. A wake-up during an inspection causes another inspection. A workload
that takes several steps is inspected after each: the next inspection also serves the wake-ups before it, such
as Docker's events of the step itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from persys.agent.journal.store import Journal
from persys.model.ids import WorkloadId


class WorkQueue:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._queued: dict[WorkloadId, None] = {}  # from the wake-up until the inspection begins
        self._ready: deque[WorkloadId] = deque()  # queued, and not yet taken by the worker
        self._some = asyncio.Event()
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}
        self._pass_left: set[WorkloadId] = set()  # of the present pass, not inspected yet
        self._pass_ended: Callable[[], None] | None = None

    def wake(self, workload_id: WorkloadId) -> None:
        """Inspect this workload soon."""
        if workload_id in self._queued:
            return
        self._queued[workload_id] = None
        self._ready.append(workload_id)
        self._some.set()

    def wake_all(self) -> None:
        for workload_id in self._journal.entries:
            self.wake(workload_id)

    def begin_pass(self, ended: Callable[[], None]) -> None:
        """Wake all workloads. `ended` is called when each was inspected.

        Only one pass is tracked at a time: during a pass, another one only wakes the workloads.
        """
        self.wake_all()
        if self._pass_ended is None:
            self._pass_left, self._pass_ended = set(self._queued), ended
            self._end_pass_if_done()

    def inspected(self, workload_id: WorkloadId) -> None:
        self._pass_left.discard(workload_id)
        self._end_pass_if_done()

    def _end_pass_if_done(self) -> None:
        if not self._pass_left and self._pass_ended is not None:
            ended, self._pass_ended = self._pass_ended, None
            ended()

    def wake_after(self, workload_id: WorkloadId, seconds: float) -> None:
        """Wake the workload later. Replaces its earlier timer."""
        self._cancel_timer(workload_id)
        loop = asyncio.get_running_loop()
        self._timers[workload_id] = loop.call_later(max(0.0, seconds), self._due, workload_id)

    def restart(self) -> None:
        """Queue all workloads for a new worker, also those that an earlier worker has taken."""
        self._queued.clear()
        self._ready.clear()
        self._pass_left, self._pass_ended = set(), None
        self.wake_all()

    async def take(self) -> WorkloadId:
        """The next workload. It counts as queued until `begin`."""
        while not self._ready:
            self._some.clear()
            await self._some.wait()
        return self._ready.popleft()

    def begin(self, workload_id: WorkloadId) -> bool:
        """An inspection begins: it shows every earlier change, and later events queue the workload again.

        False if an inspection has begun since the last wake-up.
        """
        if workload_id not in self._queued:
            return False  # and its timer was set after that inspection
        del self._queued[workload_id]
        self._cancel_timer(workload_id)
        return True

    def _due(self, workload_id: WorkloadId) -> None:
        self._timers.pop(workload_id, None)
        self.wake(workload_id)

    def _cancel_timer(self, workload_id: WorkloadId) -> None:
        if (timer := self._timers.pop(workload_id, None)) is not None:
            timer.cancel()
