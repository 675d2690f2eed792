"""A stream both ways between two simulated processes: ordered, and broken as a connection breaks.

Nothing on it is lost or doubled alone, as over TCP: what does not get through is sent again, and all behind
it waits. After some time without getting through, each end finds the stream broken.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import grpc

from persys.sim.life import Life
from persys.sim.loop import later
from persys.sim.network import AbortedError, Context, Metadata, Network, rpc_error
from persys.wire.gen.control.v1 import control_pb2

SEND_AGAIN_SECONDS = 0.3
# What gRPC takes to notice: its pings are 20 s apart, and one is waited for for 10 s.
KEEPALIVE_SECONDS = 30.0

_numbers = count()


class End:
    """The last that comes: a status. None of its own is sent by a process that died."""

    def __init__(self, code: grpc.StatusCode, details: str = "", trailing: Metadata = ()) -> None:
        self.code = code
        self.details = details
        self.trailing = trailing


BROKEN = End(grpc.StatusCode.UNAVAILABLE, "the connection broke")


class Pipe:
    """One direction."""

    def __init__(
        self,
        network: Network,
        source: str,
        target: str,
        *,
        stuck: Callable[[], None],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called when the other end is found to be gone, read or not."""
        self.inbox: asyncio.Queue[bytes | End] = asyncio.Queue()
        self.swallows = False  # half-open: what is sent goes nowhere, and nobody is told
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
        if self._cut or self.swallows:
            return
        self._waiting.append(what)
        if len(self._waiting) == 1:
            self._stuck_since = asyncio.get_running_loop().time()
            self._push()

    def cut(self) -> None:
        """What is under way is lost, and the reader finds the stream broken."""
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


class Conversation:
    """A stream as its caller has it, like gRPC's call; the other side is served by a handler."""

    def __init__(
        self,
        network: Network,
        source: Life,
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
        self._end = BROKEN  # what its caller learns of how it ended
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
        """The served side says that it serves; only those who wait for it notice when that is lost."""
        crossing = self.network.crossing(self._target, self.caller)
        if crossing is not None:
            later(crossing, self._begun.set)

    def cancel(self) -> None:
        if not self._over:
            self.up.send(BROKEN)
            self._finish()
            self.down.cut()

    def cut(self) -> None:
        """It breaks: each end learns of it, what is under way is lost."""
        self.up.cut()
        self.down.cut()
        self._end_service()

    def lose(self, way: str) -> None:
        """Half-open: one direction leads nowhere, until somebody notices."""
        (self.up if way == "to" else self.down).swallows = True
        later(KEEPALIVE_SECONDS, self.cut)

    def _open(self) -> None:
        """The connection is made, or the first message waits for it."""
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

    async def _serve(self, listener: Life, handler: Callable[..., Any]) -> None:
        context = StreamContext(self, listener, self._metadata)
        try:
            await handler(self._requests(listener, context), context)
        except AbortedError as err:
            end = End(err.code, err.details, context.trailing_metadata())
        else:
            end = End(grpc.StatusCode.OK)
        await listener.gate("answer")
        self.down.send(end)

    async def _requests(self, listener: Life, context: "StreamContext") -> AsyncIterator[Any]:
        while True:
            got = await self.up.inbox.get()
            await listener.gate("receive")
            if isinstance(got, End):
                return
            message = control_pb2.ControlMessage.FromString(got)
            context.note(message)
            yield message

    def _end_service(self) -> None:
        """As gRPC does it when the caller is gone."""
        if self._served is not None:
            self._served.cancel()

    async def _feed(self, requests: AsyncIterator[Any]) -> None:
        """Pass on what comes from elsewhere. Its end is that of our requests, not of the stream."""
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


class StreamContext(Context):
    """The served side of a stream."""

    def __init__(self, stream: Conversation, listener: Life, metadata: Metadata) -> None:
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

    async def write(self, message: control_pb2.ControlMessage) -> None:
        await self._listener.gate("answer")
        # What is written as it wakes was decided before it was frozen.
        awake = self._listener.thawed_at != asyncio.get_running_loop().time()
        if message.HasField("call") and awake:
            self._network.on_send(self._listener, message.call.method)
        if message.HasField("heartbeat_answer") and awake:
            answer = message.heartbeat_answer
            self._network.on_answer(self._listener, "Heartbeat", self._heartbeat, answer, ())
        self._stream.down.send(message.SerializeToString())
        self._network.sent_on(self._stream)
