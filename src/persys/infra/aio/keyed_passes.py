"""Passes over keys: a key gets one when it has changed, or at a time that its last pass named.

Passes of a key never overlap, and those of different keys run at the same time. The next pass of a key begins
not before ten times what the last one has computed: changes in the meantime share it. An error costs its key
one pass. A key without changes and without a time costs nothing.

Times are on the wall clock: they are compared with it at least once a minute, so that a clock that was set is
noticed. While nothing may be started, changes and times wait.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush

import structlog

from persys.errors import FencedError, PersysError
from persys.infra.aio.supervisor import KeyedWork
from persys.infra.clock import Clock

log = structlog.get_logger()

PASSES_MAX = 8  # at the same time
PAUSE_FACTOR = 10  # times the cost of the last pass
PAUSE_SECONDS_MIN = 0.02
RETRY_SECONDS = 1.0  # after an expected error, and while nothing may be started
CLOCK_SECONDS = 60.0  # between two looks at the wall clock


@dataclass(frozen=True, slots=True)
class Again:
    """When a key needs its next pass, if nothing changes before. None: not at all.

    `cost_seconds`: for how long the pass has computed.
    """

    at: datetime | None = None
    after_seconds: float | None = None
    cost_seconds: float = 0.0


@dataclass(slots=True)
class _Key:
    due_at: float = math.inf  # on the monotonic clock, as `not_before`
    not_before: float = 0.0
    is_running: bool = False
    timer: datetime | None = None


class KeyedPasses:
    def __init__(
        self,
        clock: Clock,
        work: KeyedWork[str],
        *,
        name: str,
        make_pass: Callable[[str], Awaitable[Again | None]],
        may_start: Callable[[], bool],
    ) -> None:
        """`name` is the kind of the keys, for the log.

        `make_pass` returns None if the key does not exist any more. If it raises a PersysError, it is
        repeated.
        """
        self._clock = clock
        self._work = work
        self._name = name
        self._make_pass = make_pass
        self._may_start = may_start
        self._keys: dict[str, _Key] = {}
        # Entries that are not valid any more are skipped.
        self._due: list[tuple[float, str]] = []
        self._timers: list[tuple[datetime, str]] = []
        self._wakeup = asyncio.Event()
        self._running_count = 0
        self._problems: dict[str, str] = {}
        self.count = 0

    def problem(self, key: str) -> str:
        """Why the last pass of the key ended early; "" if it did not."""
        return self._problems.get(key, "")

    def wake(self, key: str) -> None:
        """The key has changed."""
        self._set_due(key, self._clock.monotonic())

    async def run(self, keys: Iterable[str]) -> None:
        """Begin with a pass of each of these keys."""
        self._keys.clear()
        self._due.clear()
        self._timers.clear()
        self._running_count = 0
        for key in keys:
            self.wake(key)
        async with asyncio.TaskGroup() as group:
            while True:
                self._wakeup.clear()
                if self._may_start():
                    self._take_timers()
                    while (due := self._next_due()) is not None:
                        self._running_count += 1
                        group.create_task(self._contained(due))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._wakeup.wait()

    def _set_due(self, key: str, at: float) -> None:
        state = self._keys.get(key)
        if state is None:
            state = self._keys[key] = _Key()
        at = max(at, state.not_before)
        if at >= state.due_at:
            return
        state.due_at = at
        if not state.is_running:  # else it is queued when its pass ends
            heappush(self._due, (at, key))
            self._wakeup.set()

    def _take_timers(self) -> None:
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            at, key = heappop(self._timers)
            state = self._keys.get(key)
            if state is not None and state.timer == at:
                state.timer = None
                self.wake(key)

    def _next_due(self) -> str | None:
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now and self._running_count < PASSES_MAX:
            at, key = heappop(self._due)
            state = self._keys.get(key)
            if state is None or state.due_at != at or state.is_running:
                continue
            if wait := self._work.due_in(key):
                state.due_at = math.inf
                self._set_due(key, now + wait)
                continue
            state.due_at, state.is_running = math.inf, True
            return key
        return None

    def _pause(self) -> float | None:
        """Until the next key is due; None: until a wake-up."""
        if not self._may_start():
            return RETRY_SECONDS
        pauses = []
        if self._due and self._running_count < PASSES_MAX:
            pauses.append(self._due[0][0] - self._clock.monotonic())
        if self._timers:
            left = (self._timers[0][0] - self._clock.now()).total_seconds()
            pauses.append(min(left, CLOCK_SECONDS))
        return max(0.001, min(pauses)) if pauses else None

    async def _contained(self, key: str) -> None:
        """An unexpected error, and an expected one such as a lost race, costs this key one pass."""
        again: Again | None = Again(after_seconds=RETRY_SECONDS)
        try:
            with self._work.contain(key):
                self.count += 1
                again = await self._make_pass(key)
                self._problems.pop(key, None)
        except FencedError:
            raise
        except PersysError as err:
            if self._problems.get(key) != str(err):
                log.warning(f"{self._name}.pass_ended", key=key, reason=str(err))
            self._problems[key] = str(err)
        finally:
            self._running_count -= 1
            self._ended(key, again)

    def _ended(self, key: str, again: Again | None) -> None:
        state, now = self._keys[key], self._clock.monotonic()
        state.is_running = False
        due_at, state.due_at = state.due_at, math.inf
        if again is None and due_at == math.inf:
            del self._keys[key]
            self._problems.pop(key, None)
            self._work.forget(key)
        else:
            again = again or Again()
            state.not_before = now + max(PAUSE_SECONDS_MIN, PAUSE_FACTOR * again.cost_seconds)
            if again.after_seconds is not None:
                due_at = min(due_at, now + max(again.after_seconds, self._work.due_in(key)))
            self._set_timer(key, state, again.at)
            self._set_due(key, due_at)
        self._wakeup.set()

    def _set_timer(self, key: str, state: _Key, at: datetime | None) -> None:
        if state.timer == at:
            return
        state.timer = at
        if at is not None:
            heappush(self._timers, (at, key))
