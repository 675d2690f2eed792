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
        self._running: dict[Hashable, _Round[T]] = {}
        self._next: dict[Hashable, _Round[T]] = {}

    async def ask(self, key: Hashable, begin: Callable[[], Awaitable[T]]) -> T:
        waiting = self._next.get(key)
        if waiting is not None:
            return await waiting.wait()
        mine: _Round[T] = _Round()
        running = self._running.get(key)
        if running is not None:
            self._next[key] = mine
            try:
                await running.end()
            except asyncio.CancelledError:
                mine.fail(_left())
                raise
            finally:
                del self._next[key]
        return await self._lead(key, mine, begin)

    async def _lead(self, key: Hashable, mine: "_Round[T]", begin: Callable[[], Awaitable[T]]) -> T:
        self._running[key] = mine
        try:
            found = await begin()
        except asyncio.CancelledError:
            mine.fail(_left())
            raise
        except BaseException as err:
            mine.fail(err)
            raise
        finally:
            del self._running[key]
        mine.done(found)
        return found


class _Round(Generic[T]):
    """One call, and those who wait for it: each in a future of its own, so that who leaves ends only that."""

    def __init__(self) -> None:
        self._sharing: list[asyncio.Future[T]] = []
        self._ending: asyncio.Future[None] | None = None

    async def wait(self) -> T:
        mine: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._sharing.append(mine)
        return await mine

    async def end(self) -> None:
        """Whatever comes of it. There is at most one who waits for this: the one who leads the next."""
        self._ending = asyncio.get_running_loop().create_future()
        await self._ending

    def done(self, found: T) -> None:
        for one in self._sharing:
            if not one.done():
                one.set_result(found)
        self._end()

    def fail(self, err: BaseException) -> None:
        for one in self._sharing:
            if not one.done():
                one.set_exception(err)
        self._end()

    def _end(self) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(None)


def _left() -> UnavailableError:
    return UnavailableError("the one who asked first has left; ask again")
