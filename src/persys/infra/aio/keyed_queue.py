"""Work queues by key: serial per key, parallel across keys.

A queue exists only while it has work. Work of one key starts in the order of submission; a slow key does not
delay others. Each piece of work runs inside `contain`, which handles unexpected exceptions; the queue then
continues with the next piece.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

Key = TypeVar("Key")
Work = Callable[[], Awaitable[None]]


class KeyedQueue(Generic[Key]):
    def __init__(
        self,
        group: asyncio.TaskGroup,
        *,
        contain: Callable[[Key], AbstractContextManager[object]],
        width: int = 1,
    ) -> None:
        """`contain` is entered around each piece of work; an exception that it does not stop ends the group.

        `width` is the number of pieces of one key that may run at once; they still start in order.
        """
        self._group = group
        self._contain = contain
        self._width = width
        self._waiting: dict[Key, deque[Work]] = {}
        self._running: dict[Key, int] = {}

    def submit(self, key: Key, work: Work) -> None:
        self._waiting.setdefault(key, deque()).append(work)
        if self._running.get(key, 0) < self._width:
            self._running[key] = self._running.get(key, 0) + 1
            self._group.create_task(self._run(key))

    def depth(self) -> int:
        return sum(len(queue) for queue in self._waiting.values()) + sum(self._running.values())

    async def _run(self, key: Key) -> None:
        try:
            while queue := self._waiting.get(key):
                work = queue.popleft()
                with self._contain(key):
                    await work()
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
                if not self._waiting.get(key):
                    self._waiting.pop(key, None)
