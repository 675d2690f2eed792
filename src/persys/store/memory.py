"""A store in memory, for tests and simulations.

It has neither a thread nor a clock of its own. Leases end by the injected clock, at the next call or at a
timer of the running loop, whichever is first, so that it also works with virtual time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextvars import Context

from persys.errors import NotFoundError, StoreUnavailableError
from persys.store.conflicts import check_guards, keys_relied_on
from persys.store.leases import Leases
from persys.store.limits import check
from persys.store.port import LeaseId, Outcome, Record, Snapshot, Unit, WatchEvent
from persys.store.watch_history import WatchHistory


class MemoryStore:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._records: dict[str, Record] = {}
        self._holders: dict[str, LeaseId] = {}
        self._revision = 0
        self._history = WatchHistory(revision=0)
        self._leases = Leases(monotonic)
        self._lease_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transactions = 0
        self._closed = False

    @property
    def transactions(self) -> int:
        return self._transactions

    async def get(self, key: str) -> Record | None:
        self._settle()
        return self._records.get(key)

    async def read(self, prefix: str) -> Snapshot:
        self._settle()
        keys = sorted(key for key in self._records if key.startswith(prefix))
        return Snapshot(self._revision, tuple(self._records[key] for key in keys))

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        check(units)
        self._settle()
        for unit in units:
            if unit.lease is not None and not self._leases.holds(unit.lease):
                raise NotFoundError("lease", str(unit.lease))
        keys = keys_relied_on(units, fence)
        found = {key: self._records[key].version for key in keys if key in self._records}
        checked = check_guards(units, fence, found, revision=self._revision)
        if checked.changes:
            self._apply(checked.changes)
            for unit in checked.accepted:
                if unit.lease is not None:
                    self._holders.update(dict.fromkeys(unit.puts, unit.lease))
        return checked.outcomes

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        return self._history.watch(prefix, after=after)

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        self._settle()
        self._lease_count += 1
        lease = LeaseId(self._lease_count)
        self._leases.start(lease, ttl_seconds)
        self._arm()
        return lease

    async def keep_lease(self, lease: LeaseId) -> bool:
        self._settle()
        return self._leases.keep(lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        self._leases.end(lease)
        self._settle()

    async def compact(self, revision: int) -> None:
        self._settle()
        self._history.forget_before(revision)

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._history.close()

    def _settle(self) -> None:
        """Remove the records of ended leases. Called first by every method."""
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        for lease in self._leases.ended():
            self._leases.forget(lease)
            self._remove(key for key, holder in self._holders.items() if holder == lease)

    def _remove(self, keys: Iterable[str]) -> None:
        changes = tuple(WatchEvent(key, None, self._revision + 1) for key in sorted(keys))
        if changes:
            self._apply(changes)

    def _apply(self, changes: tuple[WatchEvent, ...]) -> None:
        self._revision += 1
        self._transactions += 1
        for change in changes:
            self._holders.pop(change.key, None)
            if change.value is None:
                del self._records[change.key]
            else:
                self._records[change.key] = Record(change.key, change.value, change.version)
        self._history.append(changes)

    def _arm(self) -> None:
        """One timer, for the lease that ends first. A renewal only makes it fire early."""
        if self._timer is not None:
            self._timer.cancel()
        delay = self._leases.next_end_in()
        if delay is not None:
            # An empty context: the timer belongs to the store, not to the caller.
            self._timer = asyncio.get_running_loop().call_later(
                delay, self._on_timer, context=Context()
            )

    def _on_timer(self) -> None:
        self._settle()
        self._arm()
