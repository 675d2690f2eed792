"""Cancels the handler of an HTTP request at an await, as aiohttp does when the server stops."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from cancellation import Moment, cancelled_at

DEADLINE_SECONDS = 30.0


class RequestCanceller:
    """Runs the handler of the next request in a task that is cancelled at a given moment."""

    def __init__(self) -> None:
        self._due: list[Moment] = []
        self._reached: asyncio.Queue[bool] = asyncio.Queue()

    async def cancelled(self, moment: Moment, asking: Awaitable[Any]) -> bool:
        """Whether the handler reached that await."""
        self._due.append(moment)
        await asking
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._reached.get()

    def middleware(self) -> Middleware:
        @web.middleware
        async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self._due:
                return await handler(request)
            served: Any = handler(request)
            self._reached.put_nowait(await cancelled_at(self._due.pop(), served))
            if request.writer.output_size:
                raise ConnectionResetError("a part was sent")
            return web.Response(status=499)

        return serve
