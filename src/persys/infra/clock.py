"""The only place that reads the clock. Everything else is told the time."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time people read. May jump."""

    def monotonic(self) -> float:
        """Seconds that only ever rise, for leases and deadlines."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
