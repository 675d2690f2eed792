"""Single flight: concurrent identical reads share one call to the scheduler.

Only requests that arrived before a call started share its result, so no request gets data older than itself.
A request that arrives during a call waits for the next one: at most one call per key is running.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from persys.errors import UnavailableError

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self) -> None:
        self._running: dict[Hashable, _Round[T]] = {}
        self._next: dict[Hashable, _Round[T]] = {}

    async def call(self, key: Hashable, begin: Callable[[], Awaitable[T]]) -> T:
        waiting = self._next.get(key)
        if waiting is not None:
            return await waiting.wait()
        call_round: _Round[T] = _Round()
        running = self._running.get(key)
        if running is not None:
            self._next[key] = call_round
            try:
                await running.end()
            except asyncio.CancelledError:
                call_round.fail(_left())
                raise
            finally:
                del self._next[key]
        return await self._run_call(key, call_round, begin)

    async def _run_call(
        self, key: Hashable, call_round: "_Round[T]", begin: Callable[[], Awaitable[T]]
    ) -> T:
        self._running[key] = call_round
        try:
            found = await begin()
        except asyncio.CancelledError:
            call_round.fail(_left())
            raise
        except BaseException as err:
            call_round.fail(err)
            raise
        finally:
            del self._running[key]
        call_round.done(found)
        return found


class _Round(Generic[T]):
    """One call and its waiters. Each has its own future, so a cancelled waiter affects no other."""

    def __init__(self) -> None:
        self._sharing: list[asyncio.Future[T]] = []
        self._ending: asyncio.Future[None] | None = None

    async def wait(self) -> T:
        call_round: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._sharing.append(call_round)
        return await call_round

    async def end(self) -> None:
        """Wait for the end of the call, success or failure. Only the leader of the next call waits here."""
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
    return UnavailableError("the shared request was cancelled; try again")
