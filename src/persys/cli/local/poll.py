"""Polling with a deadline."""

from collections.abc import Callable
from datetime import timedelta
from time import sleep
from typing import TypeVar

from persys.infra.clock import SystemClock

T = TypeVar("T")


def poll(
    probe: Callable[[], T | None],
    *,
    within: timedelta,
    every: timedelta = timedelta(milliseconds=200),
) -> T | None:
    """Call `probe` until it returns a value; None when the time is over. Calls it at least once."""
    clock = SystemClock()
    end = clock.monotonic() + within.total_seconds()
    while True:
        found = probe()
        left = end - clock.monotonic()
        if found is not None or left <= 0:
            return found
        sleep(min(every.total_seconds(), left))
