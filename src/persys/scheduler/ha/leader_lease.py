"""Renews the leader lease and tracks how recently the store confirmed it.

Agents stop workloads with `stop_after` when no confirmed leader is in contact with them. A leader that was
replaced and has not noticed must not prevent that: the new leader relies on it.
"""

import asyncio
from collections.abc import Callable

from persys.errors import StoreUnavailableError
from persys.infra.clock import Clock
from persys.scheduler.ha.leader_key import LeaderKey

RENEW_SECONDS_MAX = 2.0
RENEWALS_PER_LEASE = 4
# How old the last confirmation may be. Less than the margin of `core.fencing`, and less than the lease.
CONFIRMED_SECONDS_MAX = 5.0
CONFIRMED_SHARE_OF_LEASE = 0.8


class LeaderLease:
    def __init__(
        self,
        leader_key: LeaderKey,
        clock: Clock,
        *,
        mark_stale: Callable[[], None],
        confirm: Callable[[], None],
    ) -> None:
        """`confirm` is called when the store confirms this leader, `mark_stale` when it may have changed."""
        self._leader_key = leader_key
        self._confirm = confirm
        self._mark_stale = mark_stale
        self._clock = clock
        self.certain_at = float("-inf")  # when the store last confirmed that we lead
        lease = float(leader_key.lease_seconds or RENEWALS_PER_LEASE * RENEW_SECONDS_MAX)
        self._renew_seconds = min(RENEW_SECONDS_MAX, lease / RENEWALS_PER_LEASE)
        self._confirmed_seconds = min(CONFIRMED_SECONDS_MAX, lease * CONFIRMED_SHARE_OF_LEASE)

    @property
    def is_confirmed(self) -> bool:
        return self._clock.monotonic() <= self.certain_at + self._confirmed_seconds

    async def check(self) -> None:
        """Raises FencedError if another scheduler leads.

        The store is read only if it has not confirmed this leader lately.
        """
        if not self.is_confirmed:
            await self._leader_key.check_not_taken()

    async def run(self) -> None:
        """Raises FencedError when another scheduler has taken over."""
        while True:
            started_at = self._clock.monotonic()
            try:
                async with asyncio.timeout(self._confirmed_seconds):
                    leads = await self._leader_key.renew()
                if leads:
                    self.certain_at = started_at
                    self._confirm()
                else:
                    self._mark_stale()
            except TimeoutError:
                pass  # this process may be the slow one: that does not require a reload
            except StoreUnavailableError:
                if not self.is_confirmed:
                    self._mark_stale()  # the committer checks the store and sets the mode
            await asyncio.sleep(self._renew_seconds)
