"""Calls to agents over the control streams that they opened: for the generated stub a stream is a channel.

This is the only way to call an agent behind NAT. Calls share one stream and are identified by ids; the
stream's flow control slows the sender. Each streaming call has its own window, so that a slow reader delays
no other call. When a stream ends, its calls fail with UNAVAILABLE, like on a broken connection, and the
callers retry as usual.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

import grpc

from persys.infra.rpc.parsed_replies import rpc_error
from persys.model.ids import NodeId
from persys.scheduler.dispatch.tunnel_call import Replies, TunnelCall, deadline, in_time
from persys.wire.gen.agent.v1 import agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check

Request = TypeVar("Request")
Response = TypeVar("Response")
Metadata = Sequence[tuple[str, str]]

OUTGOING_MAX = 256
CALLS_MAX = 1_024  # on one stream


class Tunnels:
    """The open streams by node. A node that opens a second one has lost the first or is moving from it."""

    def __init__(self) -> None:
        self._open: dict[NodeId, Tunnel] = {}
        self._left: set[Tunnel] = set()

    def get(self, node_id: NodeId) -> "Tunnel | None":
        return self._open.get(node_id)

    def add(self, tunnel: "Tunnel") -> None:
        if (old := self._open.get(tunnel.node_id)) is not None:
            if old.is_moving:
                self._left.add(old)
                old.retire()
            else:
                old.close("the node opened another stream")
        self._open[tunnel.node_id] = tunnel

    def end(self, node_id: NodeId, why: str) -> None:
        """End the stream of an agent that may no longer act as this node."""
        if (tunnel := self._open.get(node_id)) is not None:
            self.drop(tunnel, why)

    def drop(self, tunnel: "Tunnel", why: str) -> None:
        tunnel.close(why)
        self._left.discard(tunnel)
        if self._open.get(tunnel.node_id) is tunnel:
            del self._open[tunnel.node_id]

    def close(self) -> None:
        for tunnel in [*self._open.values(), *self._left]:
            self.drop(tunnel, "the scheduler is stopping")


class Tunnel:
    """One open stream. Its writer sends the results of `next_message`; None ends it.

    A third-party agent accepts no calls on it, only the orders of the contract.
    """

    def __init__(self, node_id: NodeId, *, takes_calls: bool) -> None:
        self.node_id = node_id
        self.takes_calls = takes_calls
        self.is_moving = False  # the agent has announced a move to another stream
        self.outgoing: asyncio.Queue[control_pb2.ControlMessage | None] = asyncio.Queue(
            OUTGOING_MAX
        )
        # The stub uses only the three channel methods below.
        self.stub = agent_pb2_grpc.AgentServiceStub(self)
        self._calls: dict[int, Replies] = {}
        self._left: list[int] = []
        self._ids = count(1)
        self._closed = ""
        self._retired = False

    async def next_message(self) -> control_pb2.ControlMessage | None:
        """Cancellations come first: they free resources of the agent."""
        if self._left and not self._closed:
            return _cancel(self._left.pop())
        return await self.outgoing.get()

    async def send(self, message: control_pb2.ControlMessage, *, timeout: float) -> None:
        if self._closed:
            raise rpc_error(grpc.StatusCode.UNAVAILABLE, self._closed)
        async with in_time(deadline(timeout)):
            await self.outgoing.put(message)

    def take(self, reply: control_pb2.StreamReply) -> None:
        """Deliver a reply. A late one, without a call, is ignored."""
        limits_check.trim(reply)
        if (waiting := self._calls.get(reply.id)) is not None:
            waiting.take(reply)

    def retire(self) -> None:
        """New calls use another stream. This one ends after its calls in progress."""
        self._retired = True
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._retired and not self._calls:
            self.close("the node moved to another stream")

    def close(self, why: str) -> None:
        if self._closed:
            return
        self._closed = why
        code = grpc.StatusCode.UNAVAILABLE.value[0]
        for call_id, waiting in self._calls.items():
            waiting.end(control_pb2.StreamReply(id=call_id, code=code, message=why))
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
        open_call = self._opener(method, request_serializer, response_deserializer, window=0)

        async def call(request: Request, *, timeout: float, metadata: Metadata = ()) -> Response:
            call_stream = open_call(timeout, metadata)
            try:
                await call_stream.write(request)
                async for answer in call_stream:
                    return answer
            finally:
                call_stream.cancel()
            raise rpc_error(grpc.StatusCode.INTERNAL, "the call ended without a reply")

        return call

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes],
        response_deserializer: Callable[[bytes], Response],
        **_: Any,
    ) -> Callable[..., TunnelCall[Request, Response]]:
        open_call = self._opener(method, request_serializer, response_deserializer)

        def call(
            request: Request, *, timeout: float | None = None, metadata: Metadata = ()
        ) -> TunnelCall[Request, Response]:
            call_stream = open_call(timeout, metadata)
            call_stream.first = request
            return call_stream

        return call

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Request], bytes],
        response_deserializer: Callable[[bytes], Response],
        **_: Any,
    ) -> Callable[..., TunnelCall[Request, Response]]:
        open_call = self._opener(method, request_serializer, response_deserializer)

        def call(
            *, timeout: float | None = None, metadata: Metadata = ()
        ) -> TunnelCall[Request, Response]:
            return open_call(timeout, metadata)

        return call

    def _opener(
        self,
        method: str,
        serialize: Callable[[Request], bytes],
        deserialize: Callable[[bytes], Response],
        **options: int,
    ) -> Callable[[float | None, Metadata], TunnelCall[Request, Response]]:
        def open_call(timeout: float | None, metadata: Metadata) -> TunnelCall[Request, Response]:
            if self._closed:
                raise rpc_error(grpc.StatusCode.UNAVAILABLE, self._closed)
            if len(self._calls) >= CALLS_MAX:
                text = f"{CALLS_MAX} calls to {self.node_id} are in progress; try again later"
                raise rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            opening = control_pb2.StreamCall(
                id=next(self._ids), method=method.rpartition("/")[2], metadata=dict(metadata)
            )
            call_stream = TunnelCall(
                opening,
                serialize,
                deserialize,
                send=self._send,
                left=self._drop,
                until=deadline(timeout),
                **options,
            )
            self._calls[opening.id] = call_stream.replies
            return call_stream

        return open_call

    async def _send(self, call: control_pb2.StreamCall) -> None:
        await self.outgoing.put(control_pb2.ControlMessage(call=call))

    def _drop(self, call_id: int, ended: bool) -> None:
        """Forget a call. Its cancellation is sent to the agent, unless the agent ended the call."""
        self._calls.pop(call_id, None)
        if not ended and not self._closed:
            self._send_cancel(call_id)
        self._end_if_idle()

    def _send_cancel(self, call_id: int) -> None:
        if self.outgoing.full():
            self._left.append(call_id)
        else:
            self.outgoing.put_nowait(_cancel(call_id))


def _cancel(call_id: int) -> control_pb2.ControlMessage:
    return control_pb2.ControlMessage(call=control_pb2.StreamCall(id=call_id, cancel=True))
