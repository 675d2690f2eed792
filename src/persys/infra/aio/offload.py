"""Keeps the event loop responsive: time slices for long loops, threads for CPU-bound work such as parsing.

Work on a thread must be bounded: a thread cannot be stopped. The deadline bounds how long the caller waits,
and the number of jobs is limited, so that a flood of large requests is refused instead of queued.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from persys.errors import UnavailableError
from persys.infra.clock import Clock

SLICE_SECONDS = 0.005

T = TypeVar("T")

DEADLINE_SECONDS = 20.0
JOBS_MAX = 64

_jobs = 0


class Turns:
    """Turns of concurrent computations: one of them continues in each iteration of the event loop.

    Without it, each of a hundred concurrent requests would use a whole slice of every iteration.
    """

    def __init__(self) -> None:
        self._next = asyncio.Lock()

    async def take(self) -> None:
        """Wait for the next turn, in the order of the calls."""
        async with self._next:
            await asyncio.sleep(0)


class TimeSlice:
    def __init__(self, clock: Clock, turns: Turns | None = None) -> None:
        """`turns` are shared with concurrent computations of the same kind."""
        self._clock = clock
        self._turns = turns
        self._ends = clock.monotonic() + SLICE_SECONDS

    async def between(self) -> None:
        """Yield to other tasks if the slice is over. Call it wherever the computation may pause."""
        if self._clock.monotonic() < self._ends:
            return
        if self._turns is None:
            await asyncio.sleep(0)
        else:
            await self._turns.take()
        self._ends = self._clock.monotonic() + SLICE_SECONDS


async def off_loop(work: Callable[[], T], *, deadline_seconds: float = DEADLINE_SECONDS) -> T:
    """Run `work` on a thread. Raises UnavailableError for too many jobs or at the deadline."""
    global _jobs
    if _jobs >= JOBS_MAX:
        raise UnavailableError(f"{JOBS_MAX} requests are being parsed; try again")
    _jobs += 1
    try:
        async with asyncio.timeout(deadline_seconds):
            return await asyncio.to_thread(work)
    except TimeoutError as err:
        raise UnavailableError(f"parsing took longer than {deadline_seconds:g} s") from err
    finally:
        _jobs -= 1
