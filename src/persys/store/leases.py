"""Expiry of leases on an injected clock, for the stores that implement leases themselves.

The store removes the records of an ended lease.
"""

from collections.abc import Callable

from persys.store.port import LeaseId


class Leases:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ttl: dict[LeaseId, int] = {}
        self._ends_at: dict[LeaseId, float] = {}

    def start(self, lease: LeaseId, ttl_seconds: int) -> None:
        self._ttl[lease] = ttl_seconds
        self._ends_at[lease] = self._monotonic() + ttl_seconds

    def keep(self, lease: LeaseId) -> bool:
        if not self.holds(lease):
            return False
        self._ends_at[lease] = self._monotonic() + self._ttl[lease]
        return True

    def holds(self, lease: LeaseId) -> bool:
        return lease in self._ends_at and self._ends_at[lease] > self._monotonic()

    def end(self, lease: LeaseId) -> None:
        """End the lease now; `ended` returns it until `forget`."""
        if lease in self._ends_at:
            self._ends_at[lease] = self._monotonic()

    def forget(self, lease: LeaseId) -> None:
        self._ttl.pop(lease, None)
        self._ends_at.pop(lease, None)

    def ended(self) -> list[LeaseId]:
        now = self._monotonic()
        return sorted(lease for lease, ends_at in self._ends_at.items() if ends_at <= now)

    def next_end_in(self) -> float | None:
        """Seconds until the next lease ends, or None when there is none to wait for."""
        if not self._ends_at:
            return None
        return max(0.0, min(self._ends_at.values()) - self._monotonic())
