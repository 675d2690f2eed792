"""Runs work that must finish once it has started, even if its caller disconnects.

A request handler runs in a task of its caller and is cancelled when the caller disconnects. Work that writes
to a journal or commits must not be interrupted by that: it runs here, in a task of the process, and the
handler only waits for its result. An unexpected exception fails only that request.
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
    """Tasks of the process, at most `limit` at a time; more are refused.

    `stopped` creates the error for a caller whose work is not accepted, or is cancelled because `run` ends.
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
        """The number of tasks in progress."""
        return len(self._tasks)

    async def drained(self) -> None:
        """Wait until nothing is in progress, including work that is added while waiting."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def run(self) -> None:
        """Work is accepted while this runs."""
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
        """Run `work` to its end even if this call is cancelled or its deadline passes; returns its result.

        Passes on a PersysError of `work`; any other exception is recorded under `where` and `key` and becomes
        a DefectError. Raises UnavailableError at the deadline (0: none) or when too much is in progress, and
        the error of `stopped` when the process cancels the work, which may be done nevertheless.
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
        """The result, or the error as a value: it must reach the caller and not the task group."""
        failures: list[InternalError] = []
        with self._supervisor.contain(where, key, failed=failures.append):
            try:
                return await work()
            except PersysError as err:
                return err
        return DefectError(f"internal error: {failures[0].text}")
