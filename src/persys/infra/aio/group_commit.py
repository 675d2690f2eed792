"""Group commit: items that are queued while a batch is being written share the next batch.

One write (a transaction, an fsync) serves many callers, and a single caller is not delayed. The scheduler's
committer, the agent's journal and the gateway's audit log use it.

It is driven in one of two ways. A loop calls `wait` and `next_batch`, writes the batch and resolves each of
its items. Without a loop, callers use `submit` and `flush`: one of them writes for all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from persys.errors import UnavailableError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Pending(Generic[Item]):
    """A queued item, and the future on which its caller waits."""

    item: Item
    done: asyncio.Future[None]

    def succeed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def fail(self, err: Exception) -> None:
        fail(self.done, err)


def fail(done: asyncio.Future[None], err: Exception) -> None:
    """Fail a caller that may have been cancelled: the exception counts as retrieved."""
    if not done.done():
        done.set_exception(err)
        done.exception()


class GroupCommit(Generic[Item]):
    def __init__(
        self,
        *,
        batch_max: int | None = None,
        keys_of: Callable[[Item], Collection[str]] | None = None,
        gather_seconds: float = 0.0,
    ) -> None:
        """`batch_max` limits the size of a batch. Items with a common key of `keys_of` never share a batch.

        `gather_seconds` is how long `gather` waits for more items while there are concurrent callers.
        """
        self._batch_max = batch_max
        self._keys_of = keys_of
        self._gather_seconds = gather_seconds
        self._queue: list[Pending[Item]] = []
        self._wakeup = asyncio.Event()
        self._writing = asyncio.Lock()
        self._is_concurrent = False

    def __len__(self) -> int:
        """The number of queued items, without the batch that is being written."""
        return len(self._queue)

    def submit(self, item: Item) -> asyncio.Future[None]:
        """Queue an item. The future completes when the item is written, and fails if it cannot be."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(Pending(item, done))
        self._wakeup.set()
        return done

    async def flush(
        self, done: asyncio.Future[None], write: Callable[[list[Item]], Awaitable[None]]
    ) -> None:
        """Return once the item of `done` is written in a batch, by this or another caller of `flush`.

        A write that fails or is cancelled raises in its caller; the others get UnavailableError.
        """
        async with self._writing:
            while not done.done():
                await self._write(self.next_batch(), write)
        await done

    def wake(self) -> None:
        """Let `wait` return without a queued item."""
        self._wakeup.set()

    def clear_wakeup(self) -> None:
        self._wakeup.clear()

    async def wait(self, timeout_seconds: float | None = None) -> None:
        """Return when items are queued, after `wake`, or after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._wakeup.wait()
        except TimeoutError:
            return

    async def gather(self) -> None:
        """Wait for more items. A single caller is not delayed; concurrent ones are, by `gather_seconds`."""
        if self._is_concurrent:
            await asyncio.sleep(self._gather_seconds)
        gathered = 0
        while gathered < len(self._queue) and not self._is_full():
            gathered = len(self._queue)
            await asyncio.sleep(0)
        self._is_concurrent = gathered > 1

    def next_batch(self) -> list[Pending[Item]]:
        """Take the next batch, in the order of submission. The wake-up stays set while items remain."""
        if self._keys_of is None:
            end = self._batch_max
            batch = self._queue if end is None else self._queue[:end]
            self._queue = [] if end is None else self._queue[end:]
        else:
            batch = self._disjoint(self._keys_of)
        if not self._queue:
            self._wakeup.clear()
        return batch

    def fail_queued(self, err: Exception) -> None:
        """Fail all queued items."""
        self._wakeup.clear()
        queue, self._queue = self._queue, []
        for pending in queue:
            pending.fail(err)

    def _is_full(self) -> bool:
        return self._batch_max is not None and len(self._queue) >= self._batch_max

    def _disjoint(self, keys_of: Callable[[Item], Collection[str]]) -> list[Pending[Item]]:
        """The first items without common keys. An item waits for earlier ones with the same key."""
        batch: list[Pending[Item]] = []
        left: list[Pending[Item]] = []
        used: set[str] = set()
        for pending in self._queue:
            keys = keys_of(pending.item)
            is_full = self._batch_max is not None and len(batch) >= self._batch_max
            if not is_full and used.isdisjoint(keys):
                batch.append(pending)
            else:
                left.append(pending)
            used.update(keys)
        self._queue = left
        return batch

    async def _write(
        self, batch: list[Pending[Item]], write: Callable[[list[Item]], Awaitable[None]]
    ) -> None:
        is_written = False
        try:
            await write([pending.item for pending in batch])
            is_written = True
        finally:
            for pending in batch:
                if is_written:
                    pending.succeed()
                else:
                    pending.fail(UnavailableError("the write failed; try again"))
