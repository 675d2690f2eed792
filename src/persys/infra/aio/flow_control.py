"""Flow control of one call on a shared stream: a send window and a bounded inbox.

Both sides of the control stream use it. Counts come from the peer, so each is checked: a peer that violates
the protocol ends only its own call. Counts are only compared and added, so a count of two billion is cheap.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SendWindow:
    """At most `size` messages may be in flight until the reader acknowledges some."""

    def __init__(self, size: int) -> None:
        assert size > 0
        self._size = size
        self._left = size
        self._opened = asyncio.Event()

    async def acquire(self) -> None:
        """Wait until one more message may be sent."""
        while not self._left:
            self._opened.clear()
            await self._opened.wait()
        self._left -= 1

    def give_back(self, count: int) -> bool:
        """The reader acknowledges `count` messages. False if more than were in flight."""
        if not 0 <= count <= self._size - self._left:
            return False
        self._left += count
        self._opened.set()
        return True


class Inbox(Generic[Item]):
    """Unread messages. A peer that sends more than `most` violates the protocol."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()

    def put(self, item: Item) -> bool:
        """Add a message. False if the inbox is full."""
        if len(self._items) >= self._most:
            return False
        self._items.append(item)
        self._arrived.set()
        return True

    def replace_all(self, item: Item) -> None:
        """Drop all unread messages; `item` is the next one read."""
        self._items.clear()
        self._items.append(item)
        self._arrived.set()

    async def get(self) -> Item:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()
