"""A long computation in slices: between two of them everything else gets its turn."""

import asyncio

from persys.infra.clock import Clock

SLICE_SECONDS = 0.005


class Slices:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends = clock.monotonic() + SLICE_SECONDS

    async def between(self) -> None:
        """Call it wherever the computation may pause; it does when its slice is over."""
        if self._clock.monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._clock.monotonic() + SLICE_SECONDS
