"""A store that fails on demand, in front of a real one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from persys.errors import CompactedError, FencedError, StoreUnavailableError
from persys.model.cluster import Leader
from persys.store import keys
from persys.store.port import LeaseId, Outcome, Record, Snapshot, Store, Unit, WatchEvent
from persys.wire.stored import records


class FaultyStore:
    """Delegates to a real store, which outlives the scheduler that closes this one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.down = False  # nothing is written, nothing is read
        self.commits_left: int | None = None  # it goes down after this many commits
        self.loses_answers = False  # writes are stored, but the reply is lost
        self.holds_back = False  # the next commit gets no reply, and is written after the next read
        self._held_back: list[tuple[Sequence[Unit], tuple[str, int] | None]] = []
        self.down_for_leases = False  # leases cannot be renewed
        self.is_behind = False  # the next revision of a watch is compacted, once
        self.watch_tells = asyncio.Event()  # clear: it delivers nothing, like a frozen member
        self.watch_tells.set()
        self.next_leader = ""  # a scheduler of this name leads after the next commit
        self.commit_seconds = 0.0
        self.commits = 0

    @property
    def transactions(self) -> int:
        return self.store.transactions

    async def get(self, key: str) -> Record | None:
        self._answer()
        return await self.store.get(key)

    async def read(self, prefix: str) -> Snapshot:
        self._answer()
        snapshot = await self.store.read(prefix)
        await self._deliver()
        return snapshot

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        self.commits += 1
        self.down = self.down or self.commits_left == 0
        if self.commits_left:
            self.commits_left -= 1
        self._answer()
        if self.commit_seconds:
            await asyncio.sleep(self.commit_seconds)
        if self.holds_back:
            self.holds_back = False
            self._held_back.append((units, fence))
            raise StoreUnavailableError("no answer in time")
        outcomes = await self.store.commit(units, fence=fence)
        await self._change_leader()
        if self.loses_answers:
            raise StoreUnavailableError("the answer was lost")
        return outcomes

    async def _change_leader(self) -> None:
        if self.next_leader:
            leader, self.next_leader = Leader(self.next_leader), ""
            await self.store.commit([Unit(puts={keys.LEADER: records.encode(leader)})])

    async def _deliver(self) -> None:
        """Write the delayed commit now. No caller waits for the reply."""
        for units, fence in self._held_back:
            with suppress(FencedError):
                await self.store.commit(units, fence=fence)
        self._held_back.clear()

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        async for changes in self.store.watch(prefix, after=after):
            if self.is_behind:
                self.is_behind = False
                raise CompactedError("those changes are gone")
            await self.watch_tells.wait()
            yield changes

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        self._answer()
        return await self.store.grant_lease(ttl_seconds)

    async def keep_lease(self, lease: LeaseId) -> bool:
        self._answer()
        if self.down_for_leases:
            raise StoreUnavailableError("the lease was not kept")
        return await self.store.keep_lease(lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        self._answer()
        await self.store.revoke_lease(lease)

    async def compact(self, revision: int) -> None:
        await self.store.compact(revision)

    async def wipe(self) -> None:
        """Simulate a lost disk: the store replies and is empty."""
        stored = await self.store.read("/")
        await self.store.commit([Unit(deletes=[record.key for record in stored.records])])

    async def close(self) -> None:
        """The test closes the store."""

    def _answer(self) -> None:
        if self.down:
            raise StoreUnavailableError("the disk is full")
