"""Calls to agents through the streams that they opened: to the generated stub a stream is a channel.

An agent behind NAT can be called in no other way. Calls share one stream and are told apart by their ids; the
stream's own flow control holds the sender back. When a stream ends, so do the calls on it: UNAVAILABLE, as if
the connection of a plain call had broken, and whoever called tries again as ever.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any, TypeVar

import grpc

from persys.model.ids import NodeId
from persys.wire.gen.agent.v1 import agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2

Request = TypeVar("Request")
Response = TypeVar("Response")
Metadata = Sequence[tuple[str, str]]

OUTGOING_MAX = 256
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Streams:
    """The open streams, by node. A node that opens a second one has lost the first."""

    def __init__(self) -> None:
        self._open: dict[NodeId, Tunnel] = {}

    def get(self, node_id: NodeId) -> "Tunnel | None":
        return self._open.get(node_id)

    def add(self, tunnel: "Tunnel") -> None:
        if (old := self._open.get(tunnel.node_id)) is not None:
            old.close("the node has opened another stream")
        self._open[tunnel.node_id] = tunnel

    def drop(self, tunnel: "Tunnel", why: str) -> None:
        tunnel.close(why)
        if self._open.get(tunnel.node_id) is tunnel:
            del self._open[tunnel.node_id]

    def close(self) -> None:
        for tunnel in list(self._open.values()):
            self.drop(tunnel, "the scheduler is stopping")


class Tunnel:
    """One open stream. Its writer sends what is in `outgoing`; None ends it.

    An agent of another make takes no calls on it, only the orders of the contract.
    """

    def __init__(self, node_id: NodeId, *, takes_calls: bool) -> None:
        self.node_id = node_id
        self.takes_calls = takes_calls
        self.outgoing: asyncio.Queue[control_pb2.ControlMessage | None] = asyncio.Queue(
            OUTGOING_MAX
        )
        # The stub needs no more of a channel than the two methods below.
        self.stub = agent_pb2_grpc.AgentServiceStub(self)
        self._replies: dict[int, asyncio.Queue[control_pb2.StreamReply]] = {}
        self._ids = count(1)
        self._closed = ""

    async def tell(self, message: control_pb2.ControlMessage, *, timeout: float) -> None:
        if self._closed:
            raise _error(grpc.StatusCode.UNAVAILABLE, self._closed)
        async with _in_time(_deadline(timeout)):
            await self.outgoing.put(message)

    def take(self, reply: control_pb2.StreamReply) -> None:
        """An answer has come. One that came too late is nobody's any more."""
        if (waiting := self._replies.get(reply.id)) is not None:
            waiting.put_nowait(reply)

    def close(self, why: str) -> None:
        if self._closed:
            return
        self._closed = why
        code = grpc.StatusCode.UNAVAILABLE.value[0]
        for call_id, waiting in self._replies.items():
            waiting.put_nowait(control_pb2.StreamReply(id=call_id, code=code, message=why))
        while not self.outgoing.empty():
            self.outgoing.get_nowait()
        self.outgoing.put_nowait(None)

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes],
        response_deserializer: Callable[[bytes], Response],
        **_: Any,
    ) -> Callable[..., Any]:
        async def call(request: Request, *, timeout: float, metadata: Metadata = ()) -> Response:
            with self._call() as (call_id, replies):
                until = _deadline(timeout)
                await self._send(call_id, method, request_serializer(request), metadata, until)
                answer = await _next(replies, until)
                if answer is None:
                    raise _error(grpc.StatusCode.INTERNAL, "the call ended without an answer")
                return response_deserializer(answer)

        return call

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes],
        response_deserializer: Callable[[bytes], Response],
        **_: Any,
    ) -> Callable[..., AsyncIterator[Response]]:
        async def call(
            request: Request, *, timeout: float | None = None, metadata: Metadata = ()
        ) -> AsyncIterator[Response]:
            with self._call() as (call_id, replies):
                until = _deadline(timeout)
                await self._send(call_id, method, request_serializer(request), metadata, until)
                while (answer := await _next(replies, until)) is not None:
                    yield response_deserializer(answer)

        return call

    @contextmanager
    def _call(self) -> Iterator[tuple[int, "asyncio.Queue[control_pb2.StreamReply]"]]:
        """While it is open its answers are collected. Who leaves before the last one, says so."""
        if self._closed:
            raise _error(grpc.StatusCode.UNAVAILABLE, self._closed)
        call_id = next(self._ids)
        replies = self._replies[call_id] = asyncio.Queue()
        try:
            yield call_id, replies
        except BaseException:
            self._tell_left(call_id)
            raise
        finally:
            del self._replies[call_id]

    async def _send(
        self, call_id: int, method: str, request: bytes, metadata: Metadata, until: float | None
    ) -> None:
        call = control_pb2.StreamCall(
            id=call_id,
            method=method.rpartition("/")[2],
            request=request,
            metadata=dict(metadata),
        )
        async with _in_time(until):
            await self.outgoing.put(control_pb2.ControlMessage(call=call))

    def _tell_left(self, call_id: int) -> None:
        """Harmless when the call has ended: the agent knows no such call any more."""
        if not self._closed and not self.outgoing.full():
            left = control_pb2.StreamCall(id=call_id, cancel=True)
            self.outgoing.put_nowait(control_pb2.ControlMessage(call=left))


async def _next(
    replies: "asyncio.Queue[control_pb2.StreamReply]", until: float | None
) -> bytes | None:
    """The next answer; None after the last."""
    async with _in_time(until):
        reply = await replies.get()
    if reply.code:
        raise _error(_CODES.get(reply.code, grpc.StatusCode.UNKNOWN), reply.message)
    if reply.HasField("response"):
        if reply.last:
            replies.put_nowait(control_pb2.StreamReply(id=reply.id, last=True))
        return reply.response
    return None


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


@asynccontextmanager
async def _in_time(until: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError as err:
        raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "the agent gave no answer in time") from err


def _error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details=text)
