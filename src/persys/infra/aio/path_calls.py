"""Calls of the file system on paths that others name: bind sources, disks, image files.

A path may be on a mount whose server does not answer; a call then never returns. Each call runs in a thread
of its own with a deadline. A thread that is stuck cannot be ended: it keeps one of the few places of its
directory, so that further calls below the same directory fail at once while all others continue.
"""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from persys.errors import UnavailableError

DEADLINE_SECONDS = 10.0
PER_DIRECTORY_MAX = 4
CALLS_MAX = 64
_DEPTH = 2  # of the directories that are told apart: /mnt/nfs1 and /mnt/nfs2

Result = TypeVar("Result")


class PathTimeoutError(UnavailableError):
    """The file system gave no answer in time, so nothing is known about the path."""


class PathCalls(Protocol):
    async def run(self, path: str, call: Callable[[], Result]) -> Result:
        """The result of `call`, which looks at `path`. Raises what it raises, and PathTimeoutError."""


class DirectPathCalls:
    """Implements PathCalls without threads, for a simulation, whose file systems always answer."""

    async def run(self, path: str, call: Callable[[], Result]) -> Result:
        return call()


class ThreadPathCalls:
    """Implements PathCalls with one daemon thread per call: a stuck one does not hold up the exit."""

    def __init__(
        self,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        per_directory_max: int = PER_DIRECTORY_MAX,
        calls_max: int = CALLS_MAX,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._per_directory_max = per_directory_max
        self._calls_max = calls_max
        self._stuck: Counter[str] = Counter()
        self._places = asyncio.Semaphore(calls_max)

    async def run(self, path: str, call: Callable[[], Result]) -> Result:
        directory = directory_of(path)
        if self._stuck[directory] >= self._per_directory_max:
            raise PathTimeoutError(
                f"{path}: {self._stuck[directory]} earlier calls below {directory} have not returned"
            )
        if self._stuck.total() >= self._calls_max:
            raise PathTimeoutError(f"{path}: {self._calls_max} file system calls have not returned")
        async with self._places:  # those in time give theirs back within the deadline
            return await self._call(path, directory, call)

    async def _call(self, path: str, directory: str, call: Callable[[], Result]) -> Result:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        thread = _Call(call, partial(_hand_over, loop, result))
        thread.start()
        try:
            async with asyncio.timeout(self._deadline_seconds):
                return await result
        except TimeoutError as err:
            if not result.cancelled():
                raise  # raised by the call itself
            raise PathTimeoutError(
                f"{path}: no answer from the file system within {self._deadline_seconds:g} s"
            ) from err
        finally:
            if thread.is_alive() and not thread.abandon(partial(self._returned, loop, directory)):
                self._stuck[directory] += 1

    def _returned(self, loop: asyncio.AbstractEventLoop, directory: str) -> None:
        _soon(loop, lambda: self._stuck.subtract([directory]))


class _Call(threading.Thread):
    """One call. `done` gets its outcome; after `abandon`, only that it has ended."""

    def __init__(
        self, call: Callable[[], object], done: Callable[[object, BaseException | None], None]
    ) -> None:
        super().__init__(name="path-call", daemon=True)
        self._call = call
        self._done = done
        self._lock = threading.Lock()
        self._ended = False
        self._returned: Callable[[], None] | None = None

    def run(self) -> None:
        result, problem = None, None
        try:
            result = self._call()
        except BaseException as err:
            problem = err
            self._end(result, problem)
            if isinstance(err, Exception):
                return
            raise
        self._end(result, problem)

    def abandon(self, returned: Callable[[], None]) -> bool:
        """Whether it has ended already. If not, `returned` is called when it does."""
        with self._lock:
            if not self._ended:
                self._returned = returned
            return self._ended

    def _end(self, result: object, problem: BaseException | None) -> None:
        with self._lock:
            self._ended = True
        if self._returned is not None:
            self._returned()
        else:
            self._done(result, problem)


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    future: "asyncio.Future[Result]",
    result: Result,
    problem: BaseException | None,
) -> None:
    def settle() -> None:
        if future.done():
            return
        if problem is not None:
            future.set_exception(problem)
        else:
            future.set_result(result)

    _soon(loop, settle)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)


def directory_of(path: str) -> str:
    """The directory whose calls share places. Links are not followed: that could block too."""
    parts = PurePosixPath(os.path.normpath(path)).parts
    return str(PurePosixPath(*parts[: 1 + _DEPTH])) if parts else "/"
