"""The store of the simulation, and the view of one scheduler with faults: slow, down, or losing responses."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import NoReturn

from persys.errors import FencedError, NotFoundError, StoreUnavailableError
from persys.sim.engine.process import SimProcess
from persys.sim.engine.virtual_loop import later
from persys.store import keys
from persys.store.leases import Leases
from persys.store.memory import MemoryStore
from persys.store.port import Committed, LeaseId, Outcome, Record, Snapshot, Unit, WatchEvent
from persys.store.watch_history import WatchHistory

DELAY_SECONDS = (0.0005, 0.003)
NO_ANSWER_SECONDS = 5.0
LATE_SECONDS = 8.0
AFTERMATH_SECONDS = 20.0


@dataclass(slots=True)
class StoreFaults:
    """The active faults of the store."""

    out: bool = False
    answers_lost: float = 0.0
    partial: float = 0.0  # share of commits that write only some units
    late: float = 0.0  # share of commits that are written after the caller got an error
    delay_seconds: float = 0.0

    over_at: float = 0.0

    @property
    def none(self) -> bool:
        return not (
            self.out or self.answers_lost or self.partial or self.late or self.delay_seconds
        )

    @property
    def is_long_over(self) -> bool:
        """Whether the last fault ended long ago, so that no effects are pending."""
        return self.none and asyncio.get_running_loop().time() > self.over_at + AFTERMATH_SECONDS

    def heal(self) -> None:
        self.out = False
        self.answers_lost = self.partial = self.late = self.delay_seconds = 0.0
        self.over_at = asyncio.get_running_loop().time()


Committing = Callable[[SimProcess, Sequence[Unit], Record | None], None]


class SharedStore(MemoryStore):
    """The store itself, which checks can read without side effects."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__(monotonic)
        self._monotonic = monotonic

    @property
    def revision(self) -> int:
        return self._revision

    def wipe(self) -> None:
        """Lose all data, like with a new disk: revisions restart, watches are closed."""
        self._records.clear()
        self._holders.clear()
        self._leases = Leases(self._monotonic)
        self._revision = 0
        history, self._history = self._history, WatchHistory(revision=0)
        history.close()

    def rewrite(self, key: str) -> None:
        """Write the same value at a new version, like an operator with a tool of the store."""
        self._settle()
        self._apply((WatchEvent(key, self._records[key].value, self._revision + 1),))

    def written(self, prefixes: tuple[str, ...]) -> list[str]:
        """The keys below these prefixes."""
        return sorted(key for key in self._records if key.startswith(prefixes))

    def peek(self, key: str) -> Record | None:
        self._settle()
        return self._records.get(key)


class SimStore:
    def __init__(
        self,
        inner: SharedStore,
        process: SimProcess,
        faults: StoreFaults,
        random: Random,
        *,
        committed: Committing,
    ) -> None:
        """`committed` is called for each write, also if its response is lost, with the previous leader."""
        self._inner = inner
        self._process = process
        self._faults = faults
        self._random = random
        self._committed = committed

    async def get(self, key: str) -> Record | None:
        await self._reach()
        return await self._inner.get(key)

    async def read(self, prefix: str) -> Snapshot:
        await self._reach()
        snapshot = await self._inner.read(prefix)
        await self._process.gate("store.read")
        return snapshot

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        await self._reach()
        await self._process.gate("store.commit")
        if self._random.random() < self._faults.late:
            await self._commit_late(units, fence)
        if len(units) > 1 and self._random.random() < self._faults.partial:
            units = self._random.sample(units, k=self._random.randint(1, len(units) - 1))
            await self._write(units, fence)
            raise StoreUnavailableError("the connection to the store was lost within a batch")
        outcomes = await self._write(units, fence)
        await self._process.gate("store.committed")
        if self._random.random() < self._faults.answers_lost:
            await asyncio.sleep(self._random.uniform(0, NO_ANSWER_SECONDS))
            raise StoreUnavailableError("the response of the store was lost")
        await self._pause()
        return outcomes

    async def _write(self, units: Sequence[Unit], fence: tuple[str, int] | None) -> list[Outcome]:
        before = self._inner.peek(keys.LEADER)
        outcomes = await self._inner.commit(units, fence=fence)
        written = [
            unit
            for unit, outcome in zip(units, outcomes, strict=True)
            if isinstance(outcome, Committed)
        ]
        self._committed(self._process, written, before)
        return outcomes

    async def _commit_late(self, units: Sequence[Unit], fence: tuple[str, int] | None) -> NoReturn:
        """The sender gets a timeout, and the request is executed later."""

        def write() -> None:
            # The memory store never waits, so one send() completes it; the process may have crashed.
            with suppress(FencedError, NotFoundError, StopIteration):
                self._write(units, fence).send(None)

        later(self._random.uniform(0, LATE_SECONDS), write)
        await asyncio.sleep(self._random.uniform(0, NO_ANSWER_SECONDS))
        raise StoreUnavailableError("timeout of the store")

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        await self._reach()
        async for changes in self._inner.watch(prefix, after=after):
            if self._inner.revision <= changes[0].version:
                await self._pause()  # earlier changes are already in flight
            await self._process.gate("store.watch")
            if self._faults.out or self._random.random() < self._faults.answers_lost / 10:
                await asyncio.sleep(self._random.uniform(0, NO_ANSWER_SECONDS))
                raise StoreUnavailableError("the watch was lost")
            yield changes

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        await self._reach()
        return await self._inner.grant_lease(ttl_seconds)

    async def keep_lease(self, lease: LeaseId) -> bool:
        await self._reach()
        return await self._inner.keep_lease(lease)

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._reach()
        await self._inner.revoke_lease(lease)

    async def compact(self, revision: int) -> None:
        await self._reach()
        await self._inner.compact(revision)

    async def close(self) -> None:
        """The shared store stays open."""

    @property
    def transactions(self) -> int:
        return self._inner.transactions

    async def _reach(self) -> None:
        await self._process.gate("store")
        await self._pause()
        if self._faults.out:
            await asyncio.sleep(self._random.uniform(0, NO_ANSWER_SECONDS))
            raise StoreUnavailableError("the store does not respond")

    async def _pause(self) -> None:
        delay = self._random.uniform(*DELAY_SECONDS)
        if self._faults.delay_seconds:
            delay += self._random.expovariate(1 / self._faults.delay_seconds)
        await asyncio.sleep(delay)
        await self._process.gate("store")
