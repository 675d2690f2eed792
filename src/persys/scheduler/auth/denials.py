"""Writes denied requests as events. The leader writes them, and their number is limited.

If nothing can be written, in a frozen mode or after a failure, they are only in the log and the metrics.
"""

import asyncio
from contextlib import suppress

from persys.core.auth.denials import WINDOW_SECONDS, Denial, DenialLimiter
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction


class DenialLog:
    def __init__(self, committer: Committer, clock: Clock, window: float = WINDOW_SECONDS) -> None:
        self._committer = committer
        self._clock = clock
        self._ration = DenialLimiter(window)
        self._due: list[str] = []
        self._wakeup = asyncio.Event()

    def note(self, denial: Denial) -> None:
        if self._committer.modes.is_frozen:
            return
        line = self._ration.take(denial, self._clock.monotonic())
        if line is not None:
            self._due.append(line)
        self._wakeup.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_end()):
                    await self._wakeup.wait()
            self._wakeup.clear()
            self._due += self._ration.close(self._clock.monotonic())
            await self._write()

    def _until_end(self) -> float | None:
        ends_at = self._ration.ends_at
        return None if ends_at is None else max(0.0, ends_at - self._clock.monotonic())

    async def _write(self) -> None:
        lines, self._due = self._due, []
        now = self._clock.now()
        events = [Event(now, EventKind.ACCESS_DENIED, line) for line in lines]
        with suppress(StoreUnavailableError, ConflictError):
            await self._committer.commit(Transaction(done=lambda: None, events=events))
