"""The events of the remote cluster: one stream for all workload types, with a queue per subscriber.

While the stream is broken, events may be lost. Subscribers then end with RuntimeUnavailableError, and inspect
everything when they subscribe again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager

from persys.core.backoff import doubled_seconds
from persys.errors import OutOfRangeError, PersysError, RuntimeUnavailableError
from persys.federation.mapping import Names
from persys.federation.metrics import FederationMetrics
from persys.federation.ports import Remote
from persys.model.ids import WorkloadId

PAUSE_MIN_SECONDS = 0.25
PAUSE_MAX_SECONDS = 2.0

_Queue = asyncio.Queue[WorkloadId | RuntimeUnavailableError]


class RemoteEvents:
    def __init__(self, remote: Remote, names: Names, metrics: FederationMetrics) -> None:
        self._metrics = metrics
        self._remote = remote
        self._names = names
        self._sequence: int | None = None  # of the last event
        self._connected = asyncio.Event()
        self._queues: set[_Queue] = set()
        self._waiting: dict[WorkloadId, set[asyncio.Event]] = {}
        self._reading: asyncio.Timeout | None = None
        self.problem = ""  # why the stream is broken

    def reopen(self) -> None:
        """End the present stream, if there is one."""
        if self._reading is not None:
            self._reading.reschedule(0)
            self._reading = None

    async def run(self) -> None:
        attempts = 0
        while True:
            try:
                async with self._reopenable(), aclosing(self._stream()) as changed:
                    async for workload_id in changed:
                        attempts = 0
                        self._publish(workload_id)
            except TimeoutError:
                self._lost("the remote cluster does not respond")
            except OutOfRangeError as err:
                self._sequence = None  # events were deleted, or the cluster was restored
                self._lost(str(err))
            except PersysError as err:
                self._lost(str(err))
            else:
                self._lost("the event stream ended")
            await asyncio.sleep(
                doubled_seconds(PAUSE_MIN_SECONDS, attempts, longest=PAUSE_MAX_SECONDS)
            )
            attempts += 1

    async def subscribe(self) -> AsyncGenerator[WorkloadId | None, None]:
        """Ids of changed workloads. The first item is None: subscribed."""
        if not self._connected.is_set() and self.problem:
            raise RuntimeUnavailableError(self.problem)
        await self._connected.wait()
        queue: _Queue = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield None
            while True:
                item = await queue.get()
                if isinstance(item, RuntimeUnavailableError):
                    raise item
                yield item
        finally:
            self._queues.discard(queue)

    @contextmanager
    def watch(self, workload_id: WorkloadId) -> Iterator[asyncio.Event]:
        """An event that is set when the workload changes, or when the stream breaks."""
        changed = asyncio.Event()
        waiting = self._waiting.setdefault(workload_id, set())
        waiting.add(changed)
        try:
            yield changed
        finally:
            waiting.discard(changed)
            if not waiting:
                self._waiting.pop(workload_id, None)

    @asynccontextmanager
    async def _reopenable(self) -> AsyncIterator[None]:
        """`reopen` ends the block with TimeoutError."""
        async with asyncio.timeout(None) as reading:
            self._reading = reading
            try:
                yield
            finally:
                self._reading = None

    async def _stream(self) -> AsyncGenerator[WorkloadId, None]:
        await self._remote.ensure_normal()
        if self._sequence is None:
            self._sequence = await self._remote.last_event()
        async with aclosing(self._remote.events(self._sequence)) as events:
            self.problem = ""
            self._metrics.set_up(True)
            self._connected.set()
            async for event in events:
                self._sequence = event.sequence
                if (workload_id := self._names.local(event.workload_id)) is not None:
                    yield workload_id

    def _publish(self, workload_id: WorkloadId) -> None:
        for queue in self._queues:
            queue.put_nowait(workload_id)
        for changed in self._waiting.get(workload_id, ()):
            changed.set()

    def _lost(self, problem: str) -> None:
        self.problem = problem
        self._metrics.set_up(False)
        self._connected.clear()
        for queue in self._queues:
            queue.put_nowait(RuntimeUnavailableError(problem))
        for waiting in self._waiting.values():
            for changed in waiting:
                changed.set()
