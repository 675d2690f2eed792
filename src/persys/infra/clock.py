"""The only module that reads the system clock. All other code receives a Clock or the current time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock time in UTC. May jump forward, never back."""

    def monotonic(self) -> float:
        """Monotonic seconds, for leases and deadlines."""


def since_boot() -> float:
    """A monotonic clock that includes the time the machine was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _wall() -> datetime:
    return datetime.now(UTC)


class SystemClock:
    """The system clock, except that it never steps back.

    Newer records must not have older times. After a step back the time continues from its last value at the
    normal rate until the system clock has caught up.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], datetime] = _wall,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self.monotonic = monotonic
        self._last = wall()
        self._last_at = monotonic()

    def now(self) -> datetime:
        wall, at = self._wall(), self.monotonic()
        if wall < self._last:
            wall = self._last + timedelta(seconds=at - self._last_at)
        self._last, self._last_at = wall, at
        return wall
