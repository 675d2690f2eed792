"""Wraps the store: every call ends within a deadline and raises only the errors of the port.

An unexpected exception of the adapter (a defect, a library, out of memory) and a timeout both become
StoreUnavailableError: it is unknown what was written, the mode becomes degraded, and everything is read again
when the store replies. An unexpected exception is also recorded as an internal error.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from persys.errors import StoreUnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.store.port import LeaseId, Outcome, Record, Snapshot, Store, Unit, WatchEvent

T = TypeVar("T")

DEADLINE_SECONDS = 30.0
READ_DEADLINE_SECONDS = 180.0  # for a read of all records
WHERE = "store"


class StoreGuard:
    """Implements Store."""

    def __init__(self, store: Store, supervisor: Supervisor) -> None:
        self._store = store
        self._supervisor = supervisor
        self._transactions = 0

    @property
    def transactions(self) -> int:
        """The last known count, if the store fails."""
        with self._supervisor.contain(WHERE, "transactions", failed=_noted):
            self._transactions = self._store.transactions
        return self._transactions

    async def get(self, key: str) -> Record | None:
        return await self._call("get", lambda: self._store.get(key))

    async def read(self, prefix: str) -> Snapshot:
        return await self._call("read", lambda: self._store.read(prefix), READ_DEADLINE_SECONDS)

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        return await self._call("commit", lambda: self._store.commit(units, fence=fence))

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        """Has no deadline: nothing arrives while nothing changes."""
        errors: list[InternalError] = []
        with self._supervisor.contain(WHERE, "watch", failed=errors.append):
            async for changes in self._store.watch(prefix, after=after):
                yield changes
        if errors:
            raise _unavailable(errors[0])

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        return await self._call("grant_lease", lambda: self._store.grant_lease(ttl_seconds))

    async def keep_lease(self, lease: LeaseId) -> bool:
        return await self._call("keep_lease", lambda: self._store.keep_lease(lease))

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._call("revoke_lease", lambda: self._store.revoke_lease(lease))

    async def compact(self, revision: int) -> None:
        await self._call("compact", lambda: self._store.compact(revision))

    async def close(self) -> None:
        await self._call("close", self._store.close)

    async def _call(
        self, name: str, call: Callable[[], Awaitable[T]], seconds: float | None = None
    ) -> T:
        """Raises the errors of the port, and StoreUnavailableError for all others."""
        seconds = DEADLINE_SECONDS if seconds is None else seconds
        errors: list[InternalError] = []
        with self._supervisor.contain(WHERE, name, failed=errors.append):
            try:
                async with asyncio.timeout(seconds) as deadline:
                    result = await call()
            except TimeoutError as err:
                if not deadline.expired():
                    raise
                text = f"the store did not reply to {name} within {seconds:g} s"
                raise StoreUnavailableError(text) from err
            self._supervisor.resolved(WHERE, name)
            return result
        raise _unavailable(errors[0])


def _unavailable(error: InternalError) -> StoreUnavailableError:
    return StoreUnavailableError(f"the store failed at {error.key}: {error.text}")


def _noted(_error: InternalError) -> None:
    """The error is recorded; the previous value is used."""
