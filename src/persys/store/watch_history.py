"""The recent changes of a store with a single writer process, for its watchers.

A ring buffer bounded by count and bytes. A watcher that falls further behind, or starts before this process
opened the store, gets CompactedError and reads everything again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from persys.errors import CompactedError, StoreUnavailableError
from persys.store.port import WatchEvent

_CHANGE_BYTES = 200  # overhead of a change besides its key and value


class WatchHistory:
    def __init__(
        self, *, revision: int, count_max: int = 10_000, bytes_max: int = 64 * 1024 * 1024
    ) -> None:
        """`revision` is the last one before the history."""
        self._newest = revision
        self._count_max = count_max
        self._bytes_max = bytes_max
        # One entry per revision, without gaps, so that the index of a revision is a subtraction.
        self._entries: deque[tuple[WatchEvent, ...]] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._closed = False

    def append(self, changes: tuple[WatchEvent, ...]) -> None:
        """Add the next revision."""
        self._newest += 1
        assert changes[0].version == self._newest
        self._entries.append(changes)
        self._bytes += _weight(changes)
        while len(self._entries) > self._count_max or self._bytes > self._bytes_max:
            self._forget_oldest()
        self._wake()

    def forget_before(self, revision: int) -> None:
        # Ignore a revision that does not exist yet.
        if revision <= self._newest:
            while self._entries and self._oldest < revision:
                self._forget_oldest()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        while True:
            if self._closed:
                raise StoreUnavailableError("the store is closed")
            if after + 1 < self._oldest:
                raise CompactedError(
                    f"changes after revision {after} are gone; the oldest kept is {self._oldest}"
                )
            if after >= self._newest:
                await self._changed.wait()
                continue
            after += 1
            changes = self._entries[after - self._oldest]
            wanted = tuple(change for change in changes if change.key.startswith(prefix))
            if wanted:
                yield wanted

    @property
    def _oldest(self) -> int:
        return self._newest - len(self._entries) + 1

    def _forget_oldest(self) -> None:
        self._bytes -= _weight(self._entries.popleft())

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _weight(changes: tuple[WatchEvent, ...]) -> int:
    return sum(len(change.key) + len(change.value or b"") + _CHANGE_BYTES for change in changes)
