"""Flow control of one call on a shared stream: how much may be sent, and how much may wait to be read.

Both sides of the control stream use it. Counts come from the peer, so each is checked: a peer that breaks the
rules ends its own call and nothing else. All of it is arithmetic; a count of two billion costs nothing.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SendWindow:
    """At most `size` messages may be on their way before the reader has taken some."""

    def __init__(self, size: int) -> None:
        assert size > 0
        self._size = size
        self._left = size
        self._opened = asyncio.Event()

    async def acquire(self) -> None:
        """Returns when one more may be sent."""
        while not self._left:
            self._opened.clear()
            await self._opened.wait()
        self._left -= 1

    def give_back(self, count: int) -> bool:
        """The reader says that it took so many. False if that is more than were on their way."""
        if not 0 <= count <= self._size - self._left:
            return False
        self._left += count
        self._opened.set()
        return True


class Inbox(Generic[Item]):
    """Messages that were not read yet. A peer that sends more than `most` breaks the protocol."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[Item] = deque()
        self._came = asyncio.Event()

    def put(self, item: Item) -> bool:
        """False, and not taken, if it is full."""
        if len(self._items) >= self._most:
            return False
        self._items.append(item)
        self._came.set()
        return True

    def replace_all(self, item: Item) -> None:
        """Nothing but this is read from now on."""
        self._items.clear()
        self._items.append(item)
        self._came.set()

    async def get(self) -> Item:
        while not self._items:
            self._came.clear()
            await self._came.wait()
        return self._items.popleft()
