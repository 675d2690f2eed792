"""The embedded store: one SQLite file, written by this process alone.

SQLite runs on one thread of its own; a commit is one transaction with one fsync. History is kept in memory
only, because nobody else can have written: a watch that reaches back before this opening is CompactedError.
A full or failing disk is StoreUnavailableError: nothing is half done, and writes work when the disk does.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from persys.errors import NotFoundError, StoreUnavailableError
from persys.store.database import Database, Written
from persys.store.history import History
from persys.store.leases import Leases
from persys.store.limits import check
from persys.store.port import Change, LeaseId, Outcome, Record, Snapshot, Unit

T = TypeVar("T")

# How soon the records of an ended lease are tried again when the disk did not let them go.
_REMOVAL_RETRY_SECONDS = 1.0
# After each call into SQLite its thread must win Python's lock back. At the default of 5 ms a busy event
# loop, which lets go for a moment more often than that, starves it: commits were seen to take 17 s.
_SWITCH_SECONDS = 0.0001


class SqliteStore:
    def __init__(self, database: Database, thread: ThreadPoolExecutor, leases: Leases) -> None:
        self._database = database
        self._thread = thread
        self._leases = leases
        self._leases_leaving: set[LeaseId] = set()
        self._history = History(revision=database.revision)
        self._timer: asyncio.TimerHandle | None = None
        self._transactions = 0
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, monotonic: Callable[[], float]) -> Self:
        """Raises SettingsError when the file cannot be used, also because another process uses it."""
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sqlite")
        loop = asyncio.get_running_loop()
        try:
            database = await loop.run_in_executor(thread, Database, path)
            kept = await loop.run_in_executor(thread, database.leases)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        leases = Leases(monotonic)
        for lease, ttl_seconds in kept:
            # Nobody could keep a lease while we were away: each begins again with its full time.
            leases.start(lease, ttl_seconds)
        store = cls(database, thread, leases)
        store._arm()
        return store

    @property
    def transactions(self) -> int:
        return self._transactions

    async def get(self, key: str) -> Record | None:
        return await self._run(lambda: self._database.get(key))

    async def read(self, prefix: str) -> Snapshot:
        return await self._run(lambda: self._database.read(prefix))

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        check(units)
        for unit in units:
            if unit.lease is not None and not self._leases.holds(unit.lease):
                raise NotFoundError("lease", str(unit.lease))
        written = await self._write(lambda: self._database.commit(units, fence))
        return written.outcomes

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[Change, ...]]:
        return self._history.watch(prefix, after=after)

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        lease = await self._run(lambda: self._database.add_lease(ttl_seconds))
        self._leases.start(lease, ttl_seconds)
        self._arm()
        return lease

    async def keep_lease(self, lease: LeaseId) -> bool:
        self._check_open()
        return self._leases.keep(lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        self._leases.end(lease)
        await self._write(lambda: self._database.remove_lease(lease))
        self._leases.forget(lease)

    async def compact(self, revision: int) -> None:
        self._check_open()
        self._history.forget_before(revision)

    async def close(self) -> None:
        if self._closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        closing = self._hand(self._database.close)
        self._closed = True
        try:
            await asyncio.shield(closing)
        finally:
            self._history.close()
            self._thread.shutdown(wait=False)

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.shield(self._hand(job))

    async def _write(self, job: Callable[[], Written]) -> Written:
        """Whoever stops waiting for a commit under way does not stop it, nor the news of it."""
        return await asyncio.shield(self._hand_write(job))

    def _hand_write(self, job: Callable[[], Written]) -> asyncio.Future[Written]:
        written = self._hand(job)
        written.add_done_callback(self._publish)
        return written

    def _hand(self, job: Callable[[], T]) -> asyncio.Future[T]:
        self._check_open()
        return asyncio.get_running_loop().run_in_executor(self._thread, job)

    def _publish(self, written: asyncio.Future[Written]) -> None:
        if written.exception() is None and written.result().changes:
            self._transactions += 1
            self._history.append(written.result().changes)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the store is closed")

    def _arm(self, at_least: float = 0.0) -> None:
        """One timer, for the lease that ends first. Kept leases only make it fire early."""
        if self._timer is not None:
            self._timer.cancel()
        delay = self._leases.next_end_in()
        if delay is not None and not self._closed:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(delay, at_least), self._on_timer)

    def _on_timer(self) -> None:
        for lease in self._leases.ended():
            if lease not in self._leases_leaving:
                self._leases_leaving.add(lease)
                self._remove_ended(lease)
        self._arm(at_least=_REMOVAL_RETRY_SECONDS if self._leases_leaving else 0.0)

    def _remove_ended(self, lease: LeaseId) -> None:
        def settle(written: asyncio.Future[Written]) -> None:
            self._leases_leaving.discard(lease)
            if written.exception() is None:
                self._leases.forget(lease)

        self._hand_write(lambda: self._database.remove_lease(lease)).add_done_callback(settle)
