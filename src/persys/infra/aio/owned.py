"""Work that must finish once it has begun, also if its caller leaves.

A request handler runs in a task of its caller and is cancelled when the caller gives up. Work that writes to
a journal or commits must not end half-way because of that: it runs here, in a task of the process, and the
handler only waits for its result. An unexpected exception in it fails that request only.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from persys.errors import DefectError, PersysError, UnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor

Result = TypeVar("Result")


def _not_running() -> PersysError:
    return UnavailableError("this process is starting or stopping; try again")


class OwnedWork:
    """Tasks of the process, at most `limit` at the same time; more are refused.

    `stopped` makes the error for a caller whose work is not taken, or is ended because `run` ends.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        limit: int,
        stopped: Callable[[], PersysError] = _not_running,
    ) -> None:
        self._supervisor = supervisor
        self._limit = limit
        self._stopped = stopped
        self._tasks: set[asyncio.Task[object]] = set()
        self._group: asyncio.TaskGroup | None = None

    @property
    def count(self) -> int:
        """How many are in progress."""
        return len(self._tasks)

    async def drained(self) -> None:
        """Returns when nothing is in progress. What comes meanwhile is waited for too."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def run(self) -> None:
        """Work is taken while this runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()  # until cancelled, and the work with it
            finally:
                self._group = None

    async def finish(
        self,
        where: str,
        key: str,
        work: Callable[[], Awaitable[Result]],
        *,
        deadline_seconds: float = 0,
    ) -> Result:
        """The result of `work`, which runs to its end even if this call is cancelled or its deadline passes.

        Raises what `work` raises if it is a PersysError; any other exception is recorded under `where` and
        `key` and becomes a DefectError. Raises UnavailableError at the deadline (0: none) or when too much is
        in progress, and what `stopped` makes when the process ends the work: it may be done all the same.
        """
        if self._group is None:
            raise self._stopped()
        if self.count >= self._limit:
            raise UnavailableError(
                f"{self.count} requests are in progress, which is the limit; try again later"
            )
        task = self._group.create_task(self._outcome(where, key, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(deadline_seconds or None):
                outcome = await asyncio.shield(task)
        except TimeoutError:
            raise UnavailableError(
                f"no result within {deadline_seconds:g}s; the request is still in progress"
            ) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise self._stopped() from None
            raise
        if isinstance(outcome, PersysError):
            raise outcome
        return outcome

    async def _outcome(
        self, where: str, key: str, work: Callable[[], Awaitable[Result]]
    ) -> Result | PersysError:
        """Its error as a value: it is for the caller, who may have left, and not for the group."""
        failures: list[InternalError] = []
        with self._supervisor.contain(where, key, failed=failures.append):
            try:
                return await work()
            except PersysError as err:
                return err
        return DefectError(f"internal error: {failures[0].text}")
