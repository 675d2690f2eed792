"""Watches the runtimes: their events, whether they respond, and a periodic pass over all workloads.

A broken event stream may have lost events, so all workloads are inspected when it breaks and again when it is
back. A runtime that hangs may keep its stream open, so it is also pinged periodically.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import timedelta
from functools import partial

import structlog

from persys.agent.metrics import Metrics
from persys.agent.ports import Runtime
from persys.agent.workloads.work_queue import WorkQueue
from persys.agent.workloads.worker import Worker
from persys.core.backoff import doubled_seconds
from persys.errors import PersysError, RuntimeUnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import WorkloadType

log = structlog.get_logger()

PAUSE_MIN_SECONDS = 0.25
PAUSE_MAX_SECONDS = 1.0  # so that events are received again soon after Docker is back
PING_INTERVAL_SECONDS = 5.0
PING_AGAIN_SECONDS = 1.0
PING_DEADLINE_SECONDS = 5.0
PINGS_LOST_MAX = 3  # in a row: a busy host may be late


class RuntimeWatch:
    """Subscribes to the events of one runtime, and pings it."""

    def __init__(
        self,
        type_: WorkloadType,
        runtimes: Mapping[WorkloadType, Runtime],
        queue: WorkQueue,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when the runtime starts or stops responding."""
        self._type = type_
        self._runtimes = runtimes
        self._queue = queue
        self._supervisor = supervisor
        self._changed = changed
        self._up = metrics.runtime_up.labels(type_.value)
        self._listening: bool | None = None  # None: not tried yet
        self._pings_lost = 0
        self._problem = ""  # of the last failure

    @property
    def problem(self) -> str:
        """Why the runtime does not respond; empty: it does."""
        return "" if self.responds else self._problem

    @property
    def responds(self) -> bool:
        return self._listening is not False and self._pings_lost < PINGS_LOST_MAX

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._ping_periodically())

    async def _listen(self) -> None:
        attempts = 0
        while True:
            errors: list[InternalError] = []
            why = "the event stream ended"
            with self._supervisor.contain("runtime.events", self._type.value, failed=errors.append):
                try:
                    async with aclosing(self._runtimes[self._type].changes()) as changes:
                        async for workload_id in changes:
                            self._on_event(workload_id)
                            attempts = 0
                except RuntimeUnavailableError as err:
                    why = str(err)
            self._on_loss(errors[0].text if errors else why)
            pause = doubled_seconds(PAUSE_MIN_SECONDS, attempts, longest=PAUSE_MAX_SECONDS)
            await asyncio.sleep(pause)
            attempts += 1

    async def _ping_periodically(self) -> None:
        while True:
            errors: list[InternalError] = []
            answered = False
            with self._supervisor.contain("runtime.ping", self._type.value, failed=errors.append):
                answered = await self._ping()
            before = self.responds
            self._pings_lost = 0 if answered else self._pings_lost + 1
            if self.responds is not before:
                log.warning("runtime.ping", runtime=self._type.value, answers=self.responds)
                self._publish()
            await asyncio.sleep(PING_INTERVAL_SECONDS if answered else PING_AGAIN_SECONDS)

    async def _ping(self) -> bool:
        try:
            async with asyncio.timeout(PING_DEADLINE_SECONDS):
                await self._runtimes[self._type].ping()
        except TimeoutError:
            self._problem = f"no response within {PING_DEADLINE_SECONDS:g} s"
            return False
        except PersysError as err:
            self._problem = str(err)
            return False
        return True

    def _on_event(self, workload_id: WorkloadId | None) -> None:
        if workload_id is not None:
            self._queue.wake(workload_id)
            return
        before = self._listening
        self._listening = True
        if before is False:
            log.info("runtime.returned", runtime=self._type.value)
        if before is not True:
            self._publish()
        self._queue.wake_all()

    def _on_loss(self, why: str) -> None:
        self._problem = why
        if self._listening is False:
            return
        log.warning("runtime.lost", runtime=self._type.value, reason=why)
        self._listening = False
        self._publish()
        self._queue.wake_all()  # their state becomes unknown

    def _publish(self) -> None:
        self._up.set(self.responds)
        self._changed()


class RuntimeWatches:
    """One watch per runtime of this node, also for runtimes that are detected later."""

    def __init__(
        self,
        runtimes: Mapping[WorkloadType, Runtime],
        queue: WorkQueue,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._runtimes = runtimes
        self._queue = queue
        self._metrics = metrics
        self._supervisor = supervisor
        self._changed = changed
        self._added = asyncio.Event()
        self._watches: dict[WorkloadType, RuntimeWatch] = {}

    async def run(self) -> None:
        self._watches = {}
        async with asyncio.TaskGroup() as group:
            while True:
                for kind in self._runtimes.keys() - self._watches.keys():
                    self._watches[kind] = self._new(kind)
                    group.create_task(self._watches[kind].run())
                self._added.clear()
                await self._added.wait()

    def refresh(self) -> None:
        """Start the watch of an added runtime."""
        self._added.set()

    def responding(self) -> dict[WorkloadType, bool]:
        """Whether each runtime of this node responds."""
        return {
            kind: self._watches[kind].responds if kind in self._watches else True
            for kind in sorted(self._runtimes)
        }

    def problem(self) -> str:
        """Why the first runtime that does not respond does not; empty: all respond."""
        found = (self._watches[kind].problem for kind in sorted(self._watches))
        return next(filter(None, found), "")

    def unavailable(self) -> list[WorkloadType]:
        return [kind for kind, answers in self.responding().items() if not answers]

    def _new(self, kind: WorkloadType) -> RuntimeWatch:
        return RuntimeWatch(
            kind,
            self._runtimes,
            self._queue,
            self._metrics,
            self._supervisor,
            changed=self._changed,
        )


async def reconcile_periodically(
    worker: Worker,
    queue: WorkQueue,
    interval: timedelta,
    clock: Clock,
    metrics: Metrics,
    *,
    retries_applies: bool,
) -> None:
    """Inspect all workloads periodically, and retry failed deletes.

    `retries_applies`: also retry failed applies; without a scheduler only this loop does. With reconciliation
    off, workloads are only inspected.
    """
    while True:
        await asyncio.sleep(interval.total_seconds())
        began = clock.monotonic()
        await worker.retry_failed(only_deletes=not retries_applies)
        queue.begin_pass(partial(_pass_ended, clock, metrics, began))


def _pass_ended(clock: Clock, metrics: Metrics, began: float) -> None:
    seconds = clock.monotonic() - began
    metrics.work.reconciled(seconds)
    log.debug("reconcile.ended", seconds=round(seconds, 3))
