"""Which workloads to look at next. Everything that may have changed only wakes; the worker decides.

Waking a workload twice before it is looked at is waking it once. A wake-up that comes while it is looked at
is kept for the next look.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from persys.agent.state import State
from persys.model.ids import WorkloadId


class WorkQueue:
    def __init__(self, state: State) -> None:
        self._state = state
        self._queued: dict[WorkloadId, None] = {}  # from its wake-up until its look begins
        self._ready: deque[WorkloadId] = deque()  # those of them that the worker has not taken
        self._some = asyncio.Event()
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}
        self._pass_left: set[WorkloadId] = set()  # what a pass has woken and was not looked at yet
        self._pass_ended: Callable[[], None] | None = None

    def wake(self, workload_id: WorkloadId) -> None:
        """Look at this workload soon."""
        if workload_id in self._queued:
            return
        self._queued[workload_id] = None
        self._ready.append(workload_id)
        self._some.set()

    def wake_all(self) -> None:
        for workload_id in self._state.entries:
            self.wake(workload_id)

    def begin_pass(self, ended: Callable[[], None]) -> None:
        """Wake all. `ended` is called when each of them was looked at.

        One pass is followed at a time: while one lasts, because a look takes long, another only wakes.
        """
        self.wake_all()
        if self._pass_ended is None:
            self._pass_left, self._pass_ended = set(self._queued), ended
            self._end_pass_if_done()

    def looked_at(self, workload_id: WorkloadId) -> None:
        self._pass_left.discard(workload_id)
        self._end_pass_if_done()

    def _end_pass_if_done(self) -> None:
        if not self._pass_left and self._pass_ended is not None:
            ended, self._pass_ended = self._pass_ended, None
            ended()

    def wake_after(self, workload_id: WorkloadId, seconds: float) -> None:
        """Replaces an earlier timer of this workload."""
        self._cancel_timer(workload_id)
        loop = asyncio.get_running_loop()
        self._timers[workload_id] = loop.call_later(max(0.0, seconds), self._due, workload_id)

    def restart(self) -> None:
        """A worker begins: everything is to be looked at, also what an earlier one has taken."""
        self._queued.clear()
        self._ready.clear()
        self._pass_left, self._pass_ended = set(), None
        self.wake_all()

    async def take(self) -> WorkloadId:
        """The next one. It counts as queued until `begin`."""
        while not self._ready:
            self._some.clear()
            await self._some.wait()
        return self._ready.popleft()

    def begin(self, workload_id: WorkloadId) -> None:
        """Its look begins: what happens from now on wakes it again."""
        self._queued.pop(workload_id, None)
        self._cancel_timer(workload_id)

    def _due(self, workload_id: WorkloadId) -> None:
        self._timers.pop(workload_id, None)
        self.wake(workload_id)

    def _cancel_timer(self, workload_id: WorkloadId) -> None:
        if (timer := self._timers.pop(workload_id, None)) is not None:
            timer.cancel()
