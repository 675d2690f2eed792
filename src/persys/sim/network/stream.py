"""A bidirectional stream between two simulated processes: ordered, and broken like a TCP connection.

Single messages are not lost or duplicated: a lost message is sent again, and all later ones wait. After some
time without progress both ends see the stream as broken.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import grpc

from persys.sim.engine.process import SimProcess
from persys.sim.engine.virtual_loop import later
from persys.sim.network.network import AbortedError, Context, Metadata, Network, rpc_error
from persys.wire.gen.control.v1 import control_pb2

SEND_AGAIN_SECONDS = 0.3
# The time that gRPC keepalive needs: a ping every 20 s with a timeout of 10 s.
KEEPALIVE_SECONDS = 30.0

_numbers = count()


class End:
    """The end of a stream with its status. A crashed process sends none."""

    def __init__(self, code: grpc.StatusCode, details: str = "", trailing: Metadata = ()) -> None:
        self.code = code
        self.details = details
        self.trailing = trailing


BROKEN = End(grpc.StatusCode.UNAVAILABLE, "the connection was lost")


class Pipe:
    """One direction of a stream."""

    def __init__(
        self,
        network: Network,
        source: str,
        target: str,
        *,
        stuck: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called when the other end is detected as gone."""
        self.inbox: asyncio.Queue[bytes | End] = asyncio.Queue()
        self.drops_messages = False  # half-open: sent messages are lost without an error
        self._network = network
        self._source = source
        self._target = target
        self._stuck = stuck
        self._ended = ended
        self._waiting: deque[bytes | End] = deque()
        self._arrives_at = 0.0
        self._stuck_since = 0.0
        self._cut = False

    def send(self, what: bytes | End) -> None:
        if self._cut or self.drops_messages:
            return
        self._waiting.append(what)
        if len(self._waiting) == 1:
            self._stuck_since = asyncio.get_running_loop().time()
            self._push()

    def cut(self) -> None:
        """Lose messages in flight; the reader sees a broken stream."""
        if not self._cut:
            self._cut = True
            self._waiting.clear()
            self.inbox.put_nowait(BROKEN)

    def _push(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and not self._cut:
            crossing = self._network.crossing(self._source, self._target)
            if crossing is None:
                if now - self._stuck_since > KEEPALIVE_SECONDS:
                    self._stuck()
                else:
                    later(SEND_AGAIN_SECONDS, self._push)
                return
            self._stuck_since = now
            self._arrives_at = max(self._arrives_at, now + crossing)
            what = self._waiting.popleft()
            later(self._arrives_at - now, lambda what=what: self._arrive(what))  # type: ignore[misc]

    def _arrive(self, what: bytes | End) -> None:
        if self._cut:
            return
        self.inbox.put_nowait(what)
        if isinstance(what, End) and what.code is not grpc.StatusCode.OK:
            self._ended()


class StreamCall:
    """The client side of a stream, like a gRPC call; a handler serves the other side."""

    def __init__(
        self,
        network: Network,
        source: SimProcess,
        target: str,
        method: str,
        decode: Callable[[bytes], Any],
        *,
        requests: AsyncIterator[Any] | None,
        metadata: Metadata,
    ) -> None:
        self.network = network
        self._source = source
        self._method = method
        self._decode = decode
        self._metadata = metadata
        self._number = next(_numbers)
        self.caller = source.name
        self.up = Pipe(network, source.name, target, stuck=self.cut, ended=self._end_service)
        self.down = Pipe(network, target, source.name, stuck=self.cut)
        self._target = target
        self._over = False
        self._end = BROKEN  # the status for the caller
        self._begun = asyncio.Event()
        self._served: asyncio.Task[None] | None = None
        self._feeding = source.spawn(self._feed(requests)) if requests is not None else None
        source.ends.append(self._caller_died)
        network.streams.add(self)
        self._open()

    def __hash__(self) -> int:
        return self._number  # the same in every process

    async def write(self, message: Any) -> None:
        await self._source.gate("send")
        if self._over:
            raise rpc_error(BROKEN.code, BROKEN.details)
        self.up.send(message.SerializeToString())
        self.network.sent_on(self)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            got = await self.down.inbox.get()
            await self._source.gate("receive")
            if isinstance(got, End):
                self._end = got
                self._finish()
                if got.code is not grpc.StatusCode.OK:
                    raise rpc_error(got.code, got.details, got.trailing)
                return
            yield self._decode(got)

    async def initial_metadata(self) -> Metadata:
        await self._begun.wait()
        return ()

    async def code(self) -> grpc.StatusCode:
        return self._end.code

    async def details(self) -> str:
        return self._end.details

    def begin(self) -> None:
        """Send the initial metadata; it may be lost."""
        crossing = self.network.crossing(self._target, self.caller)
        if crossing is not None:
            later(crossing, self._begun.set)

    def cancel(self) -> None:
        if not self._over:
            self.up.send(BROKEN)
            self._finish()
            self.down.cut()

    def cut(self) -> None:
        """Break the stream: both ends see it, messages in flight are lost."""
        self.up.cut()
        self.down.cut()
        self._end_service()

    def lose(self, direction: str) -> None:
        """Make one direction half-open until keepalive detects it."""
        (self.up if direction == "to" else self.down).drops_messages = True
        later(KEEPALIVE_SECONDS, self.cut)

    def _open(self) -> None:
        """Connect, with retries while the network is down."""
        crossing = self.network.crossing(self._source.name, self._target)
        if self._over or not self._source.alive:
            return
        if crossing is None:
            later(SEND_AGAIN_SECONDS, self._open)
        else:
            later(crossing, self._arrive)

    def _arrive(self) -> None:
        listener = self.network.listener(self._source.name, self._target)
        handler = listener.serves.get(self._method) if listener is not None else None
        if listener is None or handler is None:
            self.down.send(End(grpc.StatusCode.UNAVAILABLE, f"{self._target} refuses connections"))
            return
        listener.ends.append(self._listener_died)
        self._served = listener.spawn(self._serve(listener, handler))

    async def _serve(self, listener: SimProcess, handler: Callable[..., Any]) -> None:
        context = StreamContext(self, listener, self._metadata)
        try:
            await self._call(handler, listener, context)
        except AbortedError as err:
            end = End(err.code, err.details, context.trailing_metadata())
        else:
            end = End(grpc.StatusCode.OK)
        await listener.gate("answer")
        self.down.send(end)

    async def _call(
        self, handler: Callable[..., Any], listener: SimProcess, context: "StreamContext"
    ) -> None:
        await handler(self._requests(listener, context), context)

    async def _requests(self, listener: SimProcess, context: "StreamContext") -> AsyncIterator[Any]:
        while True:
            got = await self.up.inbox.get()
            await listener.gate("receive")
            if isinstance(got, End):
                return
            message = control_pb2.ControlMessage.FromString(got)
            context.note(message)
            yield message

    def _end_service(self) -> None:
        """Cancel the handler, like gRPC does when the caller is gone."""
        if self._served is not None:
            self._served.cancel()

    async def _feed(self, requests: AsyncIterator[Any]) -> None:
        """Send the requests of an iterator. Its end is a half-close, not the end of the stream."""
        async for message in requests:
            if self._over:
                return
            await self.write(message)
        self.up.send(End(grpc.StatusCode.OK))

    def _finish(self) -> None:
        self._over = True
        self._begun.set()
        self.network.streams.discard(self)
        if self._feeding is not None:
            self._feeding.cancel()

    def _caller_died(self) -> None:
        self._finish()
        self.up.send(BROKEN)

    def _listener_died(self) -> None:
        self.down.send(BROKEN)


class WatchCall(StreamCall):
    """A call with one request and a stream of responses."""

    def __init__(
        self,
        network: Network,
        source: SimProcess,
        target: str,
        method: str,
        decode: Callable[[bytes], Any],
        *,
        request: Any,
        metadata: Metadata,
    ) -> None:
        self._request = request
        super().__init__(network, source, target, method, decode, requests=None, metadata=metadata)

    async def _call(
        self, handler: Callable[..., Any], listener: SimProcess, context: "StreamContext"
    ) -> None:
        request = type(self._request).FromString(self._request.SerializeToString())
        await handler(request, context)


class StreamContext(Context):
    """The context of the serving side of a stream."""

    def __init__(self, stream: StreamCall, listener: SimProcess, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._stream = stream
        self._listener = listener
        self._network = stream.network
        self._heartbeat = control_pb2.HeartbeatRequest()

    def note(self, message: control_pb2.ControlMessage) -> None:
        if message.HasField("register"):
            self._heartbeat.node_id = message.register.node_id

    async def send_initial_metadata(self, _metadata: Metadata) -> None:
        self._stream.begin()

    async def write(self, message: Any) -> None:
        await self._listener.gate("answer")
        if isinstance(message, control_pb2.ControlMessage):
            self._note_sent(message)
        self._stream.down.send(message.SerializeToString())
        self._network.sent_on(self._stream)

    def _note_sent(self, message: control_pb2.ControlMessage) -> None:
        # A message written right after a thaw was decided before the freeze.
        awake = self._listener.thawed_at != asyncio.get_running_loop().time()
        if message.HasField("call") and awake:
            self._network.on_send(self._listener, message.call.method)
        if message.HasField("heartbeat_answer") and awake:
            answer = message.heartbeat_answer
            self._network.on_answer(self._listener, "Heartbeat", self._heartbeat, answer, ())
        if message.HasField("registered") and awake:
            self._network.on_answer(
                self._listener, "RegisterNode", self._heartbeat, message.registered, ()
            )
