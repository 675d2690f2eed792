"""Work that belongs to the leader and not to its caller: it is finished even if the caller leaves.

An unexpected exception in it fails that request only. The number of tasks is bounded.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from persys.errors import DefectError, FencedError, PersysError, UnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor

T = TypeVar("T")


class Owner:
    def __init__(self, supervisor: Supervisor, *, tasks_max: int) -> None:
        self._supervisor = supervisor
        self._tasks_max = tasks_max
        self.count = 0  # tasks in progress
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Work is taken while this runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()  # until cancelled, and the work with it
            finally:
                self._group = None

    async def do(
        self, work: Coroutine[None, None, T], *, key: str = "", deadline_seconds: float = 0
    ) -> T:
        """Wait for the work, at most until the deadline (0: none); the work continues in any case.

        What it raises is for the caller, not for the group. Raises FencedError when this scheduler does not
        lead any more; it may have been done all the same. Raises DefectError when it failed unexpectedly, and
        UnavailableError at the deadline or when too much is in progress.
        """
        if self._group is None:
            work.close()
            raise FencedError("this scheduler does not lead any more; try again")
        if self.count >= self._tasks_max:
            work.close()
            raise UnavailableError(
                f"{self.count} changes are in progress, which is the limit; try again later"
            )
        task = self._group.create_task(self._outcome(work, key))
        self.count += 1
        task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(deadline_seconds or None):
                outcome = await asyncio.shield(task)
        except TimeoutError:
            raise UnavailableError(
                f"no result within {deadline_seconds:g}s; the change is still in progress"
            ) from None
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise FencedError("this scheduler does not lead any more; try again") from None
            raise
        if isinstance(outcome, PersysError):
            raise outcome
        return outcome

    def _ended(self, _task: object) -> None:
        self.count -= 1

    async def _outcome(self, work: Coroutine[None, None, T], key: str) -> T | PersysError:
        failures: list[InternalError] = []
        with self._supervisor.contain("request", key, failed=failures.append):
            try:
                return await work
            except PersysError as err:
                return err
        return DefectError(f"internal error: {failures[0].text}")
