"""Answers of a stream, read ahead of whoever writes them on, so that silence can be told from an end.

The call is given up as soon as the reader leaves; at most a few answers wait in between, so a slow client
slows the scheduler and fills no memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import grpc

from persys.errors import PersysError
from persys.gateway.problems import ProblemError, problem_from_rpc
from persys.infra.together import together

AHEAD_MAX = 16
# So long a stream may keep silent before it counts as begun: a refusal comes sooner.
FIRST_SECONDS = 1.5
SILENCE: Final = object()
_END: Final = object()


class StreamEndedError(PersysError):
    """The gateway ends its streams, because it stops."""


class Pump:
    def __init__(self, call: Any, stopping: asyncio.Event) -> None:
        self._call = call
        self._stopping = stopping
        self._queue: asyncio.Queue[Any] = asyncio.Queue(AHEAD_MAX)
        self._first: list[Any] = []

    async def begin(self, within: float) -> None:
        """Raises ProblemError for a stream that is refused: there is still time to say so with a status."""
        try:
            async with asyncio.timeout(within):
                self._first.append(await self._queue.get())
        except TimeoutError:
            return
        if isinstance(self._first[0], ProblemError):
            raise self._first[0]

    async def answers(self, silence_seconds: float) -> AsyncIterator[Any]:
        """Each answer, and SILENCE when there was none for so long. Raises ProblemError."""
        while True:
            if self._first:
                found = self._first.pop()
            else:
                try:
                    async with asyncio.timeout(silence_seconds):
                        found = await self._queue.get()
                except TimeoutError:
                    found = SILENCE
            if found is _END:
                return
            if isinstance(found, ProblemError):
                raise found
            yield found

    async def read(self) -> None:
        try:
            async for answer in self._call:
                await self._queue.put(answer)
        except grpc.aio.AioRpcError as err:
            await self._queue.put(problem_from_rpc(err))
            return
        await self._queue.put(_END)

    async def watch_for_stop(self) -> None:
        await self._stopping.wait()
        raise StreamEndedError("the gateway stops; ask again")


@asynccontextmanager
async def pumping(
    call: Any,
    stopping: asyncio.Event,
    *,
    until_denied: Callable[[], Coroutine[None, None, NoReturn]],
) -> AsyncIterator[Pump]:
    """Raises StreamEndedError when the gateway stops meanwhile, DeniedError when the caller may not go on."""
    pump = Pump(call, stopping)
    try:
        async with together() as group:
            tasks = [
                group.create_task(pump.read()),
                group.create_task(pump.watch_for_stop()),
                group.create_task(until_denied()),
            ]
            yield pump
            for task in tasks:
                task.cancel()
    finally:
        call.cancel()
