"""Whether this process still is the one who writes, made sure of every few seconds, and its lease renewed.

Agents stop what has `stop_after` when no scheduler with authority speaks to them. One that was replaced and
has not noticed must not keep them from it: whoever replaced it counts on that.
"""

import asyncio
from collections.abc import Callable

from persys.errors import StoreUnavailableError
from persys.infra.clock import Clock
from persys.scheduler.lead import Lead

LOOK_SECONDS = 2.0
# How old the last certainty may be. Less than the margin of `core.fencing`.
CERTAIN_SECONDS = 5.0


class Authority:
    def __init__(self, lead: Lead, clock: Clock, *, doubt: Callable[[], None]) -> None:
        self._lead = lead
        self._doubt = doubt
        self._clock = clock
        self._certain_at = float("-inf")

    @property
    def is_certain(self) -> bool:
        return self._clock.monotonic() <= self._certain_at + CERTAIN_SECONDS

    async def run(self) -> None:
        """Raises FencedError when another scheduler has taken over."""
        while True:
            asked_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(CERTAIN_SECONDS):
                    leads = await self._lead.renew()
                if leads:
                    self._certain_at = asked_at
                else:
                    self._doubt()
            except (StoreUnavailableError, TimeoutError):
                pass  # the committer tells of it; here it only means not to be certain
            await asyncio.sleep(LOOK_SECONDS)
