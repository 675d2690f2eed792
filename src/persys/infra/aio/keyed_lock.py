"""A fair lock per key, around read, decide and commit."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

Key = TypeVar("Key")


class KeyedLock(Generic[Key]):
    def __init__(self) -> None:
        self._queues: dict[Key, deque[asyncio.Future[None]]] = {}

    def is_held(self, key: Key) -> bool:
        return key in self._queues

    @asynccontextmanager
    async def hold(self, key: Key) -> AsyncIterator[None]:
        """Hold the lock of a key. Waiters get it in the order of their requests."""
        await self.acquire(key)
        try:
            yield
        finally:
            self.release(key)

    async def acquire(self, key: Key) -> None:
        """Without a wait if the lock is free. For many keys at once; else use `hold`."""
        queue = self._queues.get(key)
        if queue is None:
            self._queues[key] = deque()
        else:
            granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            queue.append(granted)
            try:
                await granted
            except asyncio.CancelledError:
                # A waiter cancelled in the queue is skipped when it is next.
                if not granted.cancelled():
                    self.release(key)  # the lock was granted during the cancellation
                raise

    def release(self, key: Key) -> None:
        queue = self._queues[key]
        while queue:
            granted = queue.popleft()
            if not granted.cancelled():
                granted.set_result(None)
                return
        del self._queues[key]
