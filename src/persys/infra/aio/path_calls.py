"""File system calls on paths that users set and on the files of workloads.

A path may be on a mount whose server does not respond; a call then never returns. Each call runs in its own
thread with a deadline. A blocked thread cannot be stopped: it occupies one of the few slots of its directory,
so further calls below the same directory fail at once while all others continue.
"""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Generic, Protocol, TypeVar

from persys.errors import UnavailableError

DEADLINE_SECONDS = 10.0
LONG_SECONDS = 600.0  # for copies and removals of whole directories, and for large files
PER_DIRECTORY_MAX = 4
CALLS_MAX = 64
_DEPTH = 2  # path segments that identify a directory: /mnt/nfs1 and /mnt/nfs2

Result = TypeVar("Result")


class PathTimeoutError(UnavailableError):
    """The file system did not respond in time; the state of the path is unknown."""


class PathCalls(Protocol):
    async def run(
        self,
        path: Path | str,
        call: Callable[[], Result],
        *,
        deadline_seconds: float | None = None,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        """Run `call`, which accesses `path`. Passes on its exceptions, and raises PathTimeoutError.

        A call continues when its caller is cancelled. `discard` then receives the result, for example an
        open file.
        """


class DirectPathCalls:
    """Implements PathCalls without threads, for simulations, whose file systems always respond."""

    async def run(
        self,
        path: Path | str,
        call: Callable[[], Result],
        *,
        deadline_seconds: float | None = None,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        return call()


class ThreadPathCalls:
    """Implements PathCalls with one daemon thread per call: a blocked thread does not delay the exit."""

    def __init__(
        self,
        *,
        roots: Sequence[Path] = (),
        deadline_seconds: float = DEADLINE_SECONDS,
        per_directory_max: int = PER_DIRECTORY_MAX,
        calls_max: int = CALLS_MAX,
    ) -> None:
        """Below each of `roots`, every directory has its own slots."""
        self._roots = tuple(PurePosixPath(root) for root in roots)
        self._deadline_seconds = deadline_seconds
        self._per_directory_max = per_directory_max
        self._calls_max = calls_max
        self._stuck: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(calls_max)

    async def run(
        self,
        path: Path | str,
        call: Callable[[], Result],
        *,
        deadline_seconds: float | None = None,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        directory = directory_of(str(path), self._roots)
        if self._stuck[directory] >= self._per_directory_max:
            raise PathTimeoutError(
                f"{path}: {self._stuck[directory]} earlier calls below {directory} have not returned"
            )
        if self._stuck.total() >= self._calls_max:
            raise PathTimeoutError(f"{path}: {self._calls_max} file system calls have not returned")
        seconds = self._deadline_seconds if deadline_seconds is None else deadline_seconds
        async with self._slots:  # calls that return release theirs within the deadline
            return await self._call(str(path), directory, _Call(call, discard), seconds)

    async def _call(
        self, path: str, directory: str, call: "_Call[Result]", seconds: float
    ) -> Result:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await call.begin(loop)
        except TimeoutError as err:
            if not deadline.expired():
                raise  # raised by the call itself
            text = f"{path}: the file system did not respond within {seconds:g} s"
            raise PathTimeoutError(text) from err
        finally:
            if call.abandon(partial(self._returned, loop, directory)):
                self._stuck[directory] += 1

    def _returned(self, loop: asyncio.AbstractEventLoop, directory: str) -> None:
        _soon(loop, lambda: self._stuck.subtract([directory]))


class _Call(Generic[Result]):
    """One call in a thread. Its result goes to the waiting caller, or to `discard` if that was cancelled."""

    def __init__(
        self, call: Callable[[], Result], discard: Callable[[Result], object] | None
    ) -> None:
        self._call = call
        self._discard = discard
        self._lock = threading.Lock()
        self._has_ended = True  # until it begins
        self._returned: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="path-call", daemon=True)

    def begin(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Result]":
        self._loop = loop
        self._outcome: asyncio.Future[Result] = loop.create_future()
        self._has_ended = False
        try:
            self._thread.start()
        except BaseException:
            self._has_ended = True
            raise
        return self._outcome

    def abandon(self, returned: Callable[[], None]) -> bool:
        """Stop waiting. True if the call has not ended; `returned` is called when it does."""
        with self._lock:
            if not self._has_ended:
                self._returned = returned
            return not self._has_ended

    def _run(self) -> None:
        try:
            result = self._call()
        except BaseException as err:
            self._end(partial(self._fail, err))
            if isinstance(err, Exception):
                return
            raise
        self._end(partial(self._deliver, result))

    def _end(self, settle: Callable[[], None]) -> None:
        with self._lock:
            self._has_ended = True
        if self._returned is not None:
            self._returned()
        _soon(self._loop, settle)

    def _fail(self, problem: BaseException) -> None:
        if isinstance(problem, StopIteration):  # futures do not accept it
            problem = RuntimeError(f"the call raised {problem!r}")
        if not self._outcome.done():
            self._outcome.set_exception(problem)

    def _deliver(self, result: Result) -> None:
        if not self._outcome.done():
            self._outcome.set_result(result)
        elif self._discard is not None:
            self._discard(result)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(call)


def directory_of(path: str, roots: Sequence[PurePosixPath] = ()) -> str:
    """The directory whose calls share slots. Links are not followed, because that could block too."""
    plain = PurePosixPath(os.path.normpath(path))
    above = [root for root in roots if plain.is_relative_to(root)]
    depth = max((len(root.parts) for root in above), default=_DEPTH)
    return str(PurePosixPath(*plain.parts[: 1 + depth]))
