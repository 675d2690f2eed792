"""One call on a control stream that carries many, with the interface of a gRPC call object.

In each direction at most `window` messages are in flight before the reader acknowledges some. A slow reader
therefore slows its writer, and nothing is buffered here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Self, TypeVar

import grpc
from google.protobuf.message import DecodeError

from persys.infra.aio.flow_control import Inbox, SendWindow
from persys.infra.rpc.parsed_replies import CANNOT_BE_PARSED, rpc_error
from persys.wire.gen.control.v1 import control_pb2

Request = TypeVar("Request")
Response = TypeVar("Response")

WINDOW = 16
ENDS = 2  # the end of the replies and a refusal do not count against the window
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Replies:
    """The replies of one call. Exceeding the window or an invalid acknowledgement ends the call."""

    def __init__(self, window: int) -> None:
        self._inbox: Inbox[control_pb2.StreamReply] = Inbox((window or 1) + ENDS)
        self._broken = False
        self.window = SendWindow(window or 1)

    def take(self, reply: control_pb2.StreamReply) -> None:
        if self._broken:
            return
        if not self.window.give_back(reply.taken):
            self._break(f"the agent acknowledged {reply.taken} messages that were not sent")
        elif (reply.code or reply.last or reply.HasField("response")) and not self._inbox.put(
            reply
        ):
            self._break("the agent sent more replies than the window allows")

    def end(self, reply: control_pb2.StreamReply) -> None:
        """End the call with this reply; queued replies are discarded."""
        self._broken = True
        self._inbox.replace_all(reply)

    def _break(self, why: str) -> None:
        code = grpc.StatusCode.INTERNAL.value[0]
        self.end(control_pb2.StreamReply(code=code, message=why))

    async def next(self) -> control_pb2.StreamReply:
        return await self._inbox.get()


class TunnelCall(Generic[Request, Response]):
    def __init__(
        self,
        opening: control_pb2.StreamCall,
        serialize: Callable[[Request], bytes],
        deserialize: Callable[[bytes], Response],
        *,
        send: Callable[[control_pb2.StreamCall], Awaitable[None]],
        left: Callable[[int, bool], None],
        until: float | None,
        window: int = WINDOW,
    ) -> None:
        """`left` is called once when the call is no longer read; its flag: the agent has ended it."""
        self.replies = Replies(window)
        self.first: Request | None = None  # written before the first reply is read
        self._id = opening.id
        self._opening: control_pb2.StreamCall | None = opening
        self._serialize = serialize
        self._deserialize = deserialize
        self._send = send
        self._left = left
        self._until = until
        self._window = window
        self._taken = 0
        self._over = False
        self._has_ended = False

    async def write(self, request: Request) -> None:
        """Returns when the message is sent. Blocks while the window is full."""
        call = self._opening or control_pb2.StreamCall(id=self._id, more=True)
        if self._opening is not None:
            call.window = self._window
            self._opening = None
        call.request = self._serialize(request)
        async with in_time(self._until):
            await self.replies.window.acquire()
            await self._send(call)

    async def done_writing(self) -> None:
        async with in_time(self._until):
            await self._send(control_pb2.StreamCall(id=self._id, last=True))

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._left(self._id, self._has_ended)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Response:
        try:
            if self.first is not None:
                first, self.first = self.first, None
                await self.write(first)
            answer = await self._next()
        except BaseException:
            self.cancel()
            raise
        if answer is None:
            self.cancel()
            raise StopAsyncIteration
        try:
            return self._deserialize(answer)
        except DecodeError as err:
            self.cancel()
            raise rpc_error(grpc.StatusCode.INTERNAL, CANNOT_BE_PARSED) from err

    async def _next(self) -> bytes | None:
        """None after the last reply."""
        if self._has_ended:
            return None
        async with in_time(self._until):
            await self._acknowledge()
            reply = await self.replies.next()
        self._has_ended = reply.last or bool(reply.code)
        if reply.code:
            raise rpc_error(_CODES.get(reply.code, grpc.StatusCode.UNKNOWN), reply.message)
        self._taken += 1
        return reply.response if reply.HasField("response") else None

    async def _acknowledge(self) -> None:
        if self._window and self._taken >= self._window // 2:
            await self._send(control_pb2.StreamCall(id=self._id, taken=self._taken))
            self._taken = 0


def deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


@asynccontextmanager
async def in_time(until: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError as err:
        raise rpc_error(
            grpc.StatusCode.DEADLINE_EXCEEDED, "the agent did not reply in time"
        ) from err
