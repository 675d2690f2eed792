"""Work that must finish once it has begun, also if its caller leaves.

A request handler runs in a task of its caller and is cancelled when the caller gives up. Work that writes to
a journal must not end half-way because of that: it runs here, in a task of the process, and the handler only
waits for its result. A caller that leaves changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from persys.errors import PersysError, UnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor

Result = TypeVar("Result")


class OwnedWork:
    """Tasks of the process. `limit` is how many may be under way at once; more are refused."""

    def __init__(self, supervisor: Supervisor, *, limit: int) -> None:
        self._supervisor = supervisor
        self._limit = limit
        self._under_way = 0
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            await asyncio.Event().wait()

    async def finish(self, where: str, key: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of `work`, which runs to its end even if this call is cancelled.

        Raises what `work` raises if it is a PersysError; any other exception is recorded under `where`
        and `key` and becomes an UnavailableError.
        """
        if self._group is None:
            raise UnavailableError("this process is still starting")
        if self._under_way >= self._limit:
            raise UnavailableError(f"{self._limit} requests are under way; try again later")
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        result.add_done_callback(_retrieve)
        self._under_way += 1
        self._group.create_task(self._perform(where, key, work, result))
        return await asyncio.shield(result)

    async def _perform(
        self,
        where: str,
        key: str,
        work: Callable[[], Awaitable[Result]],
        result: asyncio.Future[Result],
    ) -> None:
        def failed(error: InternalError) -> None:
            result.set_exception(UnavailableError(f"internal error: {error.text}"))

        try:
            with self._supervisor.contain(where, key, failed=failed):
                try:
                    result.set_result(await work())
                except PersysError as err:
                    result.set_exception(err)
        finally:
            self._under_way -= 1
            result.cancel()  # no effect on a result that is set; else the process is stopping


def _retrieve(result: asyncio.Future[Result]) -> None:
    """An error that no caller waits for any more is not reported as forgotten."""
    if not result.cancelled():
        result.exception()
