"""Runs a long computation in time slices, so that other tasks run between them."""

import asyncio

from persys.infra.clock import Clock

SLICE_SECONDS = 0.005


class TimeSlice:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends = clock.monotonic() + SLICE_SECONDS

    async def between(self) -> None:
        """Yield to other tasks if the slice is over. Call it wherever the computation may pause."""
        if self._clock.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._clock.monotonic() + SLICE_SECONDS
