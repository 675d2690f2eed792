"""Noticing change: the runtimes' own events, and a slow look at everything behind them.

A stream of events that breaks may have swallowed some, so everything is looked at when it breaks and again
when it is back.
"""

import asyncio
from contextlib import aclosing
from datetime import timedelta

import structlog

from persys.agent.metrics import Metrics
from persys.agent.ports import Runtime
from persys.agent.worker import Worker
from persys.errors import RuntimeUnavailableError
from persys.model.ids import WorkloadId
from persys.model.spec import WorkloadType

log = structlog.get_logger()

PAUSE_MIN_SECONDS = 0.25
PAUSE_MAX_SECONDS = 1.0  # what Docker does is known again soon after it is back


class Watch:
    """Listens to one runtime."""

    def __init__(
        self, type_: WorkloadType, runtime: Runtime, worker: Worker, metrics: Metrics
    ) -> None:
        self._type = type_
        self._runtime = runtime
        self._worker = worker
        self._up = metrics.runtime_up.labels(type_.value)
        self.listening: bool | None = None  # None: not tried yet

    async def run(self) -> None:
        pause = PAUSE_MIN_SECONDS
        while True:
            try:
                async with aclosing(self._runtime.changes()) as changes:
                    async for workload_id in changes:
                        self._heard(workload_id)
                        pause = PAUSE_MIN_SECONDS
            except RuntimeUnavailableError as err:
                self._lost(str(err))
            else:
                self._lost("the stream of events ended")
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_SECONDS)

    def _heard(self, workload_id: WorkloadId | None) -> None:
        if workload_id is not None:
            self._worker.wake(workload_id)
            return
        if self.listening is False:
            log.info("runtime.returned", runtime=self._type.value)
        self.listening = True
        self._up.set(1)
        self._worker.wake_all()

    def _lost(self, why: str) -> None:
        if self.listening is False:
            return
        log.warning("runtime.lost", runtime=self._type.value, reason=why)
        self.listening = False
        self._up.set(0)
        self._worker.wake_all()  # so that their state becomes unknown


async def look_at_all(worker: Worker, interval: timedelta, *, standalone: bool) -> None:
    """Without a scheduler nobody else orders a second try of what failed. What must go, goes anyway."""
    while True:
        await asyncio.sleep(interval.total_seconds())
        await worker.retry_failed(only_deletes=not standalone)
        worker.wake_all()
