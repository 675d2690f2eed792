"""A limit on concurrent calls to an engine that follows what the engine can take.

How many calls an engine can take depends on the machine and on its other load, so it is measured. While calls
wait for a slot, the limit is varied: a higher one stays if the engine then ends more calls per second, and a
lower one stays if it ends about as many. An engine whose cores are busy gets few calls at once, each of which
takes less time; an engine with idle cores gets many.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

LOWEST, FIRST, HIGHEST = 4, 16, 64
CHANGE = 0.25  # of the limit, in a trial
# A trial succeeds if the rate follows at least this share of a rise, and at most this share of a fall.
SHARE = 0.5
REST_WINDOWS = 4  # after a trial that failed


@dataclass(frozen=True, slots=True)
class Search:
    """The limit in use, and the best one so far with its rate. They differ during a trial."""

    limit: int = FIRST
    best: int = FIRST
    best_rate: float = 0.0
    rises: bool = True  # in the next trial
    rest: int = 0  # windows until then


def after_window(search: Search, rate: float) -> Search:
    """`rate`: calls per second at the present limit, while calls were waiting."""
    if search.limit == search.best:
        return _trial(replace(search, best_rate=rate))
    change = search.limit / search.best - 1
    if rate / search.best_rate - 1 > change * SHARE:
        return _trial(replace(search, best=search.limit, best_rate=rate))
    return replace(search, limit=search.best, rises=not search.rises, rest=REST_WINDOWS)


def _trial(search: Search) -> Search:
    if search.rest:
        return replace(search, rest=search.rest - 1)
    change = max(1, round(search.best * CHANGE))
    limit = search.best + change if search.rises else search.best - change
    limit = min(HIGHEST, max(LOWEST, limit))
    if limit == search.best:
        return replace(search, rises=not search.rises, rest=REST_WINDOWS)
    return replace(search, limit=limit)


class AdaptiveLimit:
    """Callers get a slot in the order of their requests."""

    def __init__(self) -> None:
        self._search = Search()
        self._in_progress = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken: list[float] = []

    @property
    def limit(self) -> int:
        return self._search.limit

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        await self._acquire()
        try:
            yield
        finally:
            self._in_progress -= 1
            self._admit()

    def measured(self, seconds: float) -> None:
        """A call has ended. To be called inside the slot, for calls of one kind: others take other times."""
        if not self._waiting:
            self._taken.clear()  # a limit that is not reached cannot be judged
            return
        self._taken.append(seconds)
        if len(self._taken) < self.limit:
            return
        rate = self.limit * len(self._taken) / max(1e-9, sum(self._taken))
        self._taken.clear()
        self._search = after_window(self._search, rate)

    async def _acquire(self) -> None:
        if self._in_progress < self.limit and not self._waiting:
            self._in_progress += 1
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():  # it was granted during the cancellation
                self._in_progress -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._in_progress < self.limit:
            granted = self._waiting.popleft()
            if not granted.done():
                granted.set_result(None)
                self._in_progress += 1
