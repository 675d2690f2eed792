"""The only place that reads the clock. Everything else is told the time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time people read. May jump forward, never back."""

    def monotonic(self) -> float:
        """Seconds that only ever rise, for leases and deadlines."""


def since_boot() -> float:
    """A monotonic clock that also counts the time the machine was asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _wall() -> datetime:
    return datetime.now(UTC)


class SystemClock:
    """The machine's clock, except that a step back is not followed.

    What is newer must not look older: after a step back the time goes on from where it was, at its usual
    pace, until the machine's clock has caught up.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], datetime] = _wall,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self.monotonic = monotonic
        self._told = wall()
        self._told_at = monotonic()

    def now(self) -> datetime:
        wall, at = self._wall(), self.monotonic()
        if wall < self._told:
            wall = self._told + timedelta(seconds=at - self._told_at)
        self._told, self._told_at = wall, at
        return wall
