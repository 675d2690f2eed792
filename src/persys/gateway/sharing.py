"""Many who ask for the same at the same time share one call to the scheduler.

A call is shared only by those who asked before it began, so each gets what was true after it asked, as if it
had asked alone. Who comes while a call is under way waits for the next: never more than one per key is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from persys.errors import UnavailableError

T = TypeVar("T")


class Shared(Generic[T]):
    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Future[T]] = {}
        self._next: dict[Hashable, asyncio.Future[T]] = {}

    async def ask(self, key: Hashable, begin: Callable[[], Awaitable[T]]) -> T:
        waiting = self._next.get(key)
        if waiting is not None:
            return await asyncio.shield(waiting)  # who leaves does not end it for the others
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        running = self._running.get(key)
        if running is not None:
            self._next[key] = mine
            try:
                await asyncio.wait([running])
            except asyncio.CancelledError:
                del self._next[key]
                _fail(mine, UnavailableError("the one who asked first has left; ask again"))
                raise
            del self._next[key]
        return await self._lead(key, mine, begin)

    async def _lead(
        self, key: Hashable, mine: asyncio.Future[T], begin: Callable[[], Awaitable[T]]
    ) -> T:
        self._running[key] = mine
        try:
            found = await begin()
        except asyncio.CancelledError:
            _fail(mine, UnavailableError("the one who asked first has left; ask again"))
            raise
        except BaseException as err:
            _fail(mine, err)
            raise
        finally:
            del self._running[key]
        mine.set_result(found)
        return found


def _fail(outcome: asyncio.Future[T], err: BaseException) -> None:
    outcome.set_exception(err)
    outcome.exception()  # perhaps nobody else waits for it, and that is no reason to complain
