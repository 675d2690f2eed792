"""The queue of changes for the next transaction, and which of them share it."""

import asyncio
from dataclasses import dataclass

from persys.errors import PersysError
from persys.scheduler.changes import Change

BATCH_MAX = 1024
CROWD_SECONDS = 0.004


@dataclass(frozen=True, slots=True)
class Pending:
    change: Change
    values: dict[str, bytes]
    stored: asyncio.Future[None]


class CommitQueue:
    def __init__(self) -> None:
        self._waiting: list[Pending] = []
        self._crowded = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, change: Change, values: dict[str, bytes]) -> asyncio.Future[None]:
        """Returns a future that completes when the change is stored."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(Pending(change, values, stored))
        return stored

    async def gather(self) -> None:
        """Wait for more changes: a single change is not delayed, concurrent ones are, for a few ms."""
        if self._crowded:
            await asyncio.sleep(CROWD_SECONDS)
        gathered = 0
        while gathered < len(self._waiting) < BATCH_MAX:
            gathered = len(self._waiting)
            await asyncio.sleep(0)
        self._crowded = gathered > 1

    def next_batch(self) -> list[Pending]:
        """The first changes that do not touch each other's records; the others wait for the next batch."""
        batch: list[Pending] = []
        left: list[Pending] = []
        touched: set[str] = set()
        for pending in self._waiting:
            keys_touched = (*pending.values, *pending.change.drops)
            if len(batch) < BATCH_MAX and touched.isdisjoint(keys_touched):
                batch.append(pending)
            else:
                left.append(pending)
            touched.update(keys_touched)
        self._waiting = left
        return batch

    def void(self, err: PersysError) -> None:
        """Fail all queued changes."""
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            fail(pending.stored, err)


def fail(waiting: asyncio.Future[None], err: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(err)
        waiting.exception()  # mark it as retrieved: the caller may have been cancelled
