"""A bounded buffer between a gRPC stream and the HTTP response, which also detects idle times.

The call is cancelled as soon as the reader stops. Few messages are buffered, so a slow client slows down the
scheduler and does not fill memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn

import grpc

from persys.errors import PersysError
from persys.gateway.http.problems import ProblemError, problem_from_rpc
from persys.infra.aio.task_group import task_group

AHEAD_MAX = 16
# A stream without a message for this long counts as accepted: a refusal arrives sooner.
FIRST_SECONDS = 1.5
IDLE: Final = object()
_END: Final = object()


class GatewayStoppingError(PersysError):
    """The gateway is stopping and ends its streams."""


class StreamBuffer:
    def __init__(self, call: Any, stopping: asyncio.Event) -> None:
        self._call = call
        self._stopping = stopping
        self._queue: asyncio.Queue[Any] = asyncio.Queue(AHEAD_MAX)
        self._first: list[Any] = []

    async def begin(self, within: float) -> None:
        """Wait for the first message. Raises ProblemError for a refusal: the status is not sent yet."""
        try:
            async with asyncio.timeout(within):
                self._first.append(await self._queue.get())
        except TimeoutError:
            return
        if isinstance(self._first[0], ProblemError):
            raise self._first[0]

    async def answers(self, silence_seconds: float) -> AsyncIterator[Any]:
        """Each message, and SILENCE after each idle `silence_seconds`. Raises ProblemError."""
        while True:
            if self._first:
                found = self._first.pop()
            else:
                try:
                    async with asyncio.timeout(silence_seconds):
                        found = await self._queue.get()
                except TimeoutError:
                    found = IDLE
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
        raise GatewayStoppingError("the gateway is stopping; try again")


@asynccontextmanager
async def stream_buffer(
    call: Any,
    stopping: asyncio.Event,
    *,
    watch_credentials: Callable[[], Coroutine[None, None, NoReturn]],
) -> AsyncIterator[StreamBuffer]:
    """Raises StreamEndedError when the gateway stops, DeniedError when the caller loses its permission."""
    buffer = StreamBuffer(call, stopping)
    try:
        async with task_group() as group:
            tasks = [
                group.create_task(buffer.read()),
                group.create_task(buffer.watch_for_stop()),
                group.create_task(watch_credentials()),
            ]
            yield buffer
            for task in tasks:
                task.cancel()
    finally:
        call.cancel()
