"""The agent side of the control stream: an outgoing connection through which the scheduler calls the agent.

A scheduler without stream support returns UNIMPLEMENTED, or does not respond to the registration. The agent
then uses unary calls until that connection is lost. A missing response may also mean a slow scheduler: the
stream is then retried every minute, because an agent behind NAT receives orders only through it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.uplink.link import (
    CALL_DEADLINE_SECONDS,
    Connect,
    Dial,
    Link,
    NoStreamError,
    SchedulerLostError,
    SilentStreamError,
    connect_unary,
)
from persys.infra.aio.task_group import task_group
from persys.infra.rpc.parsed_replies import parsed
from persys.model import feature
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

# A scheduler without stream support refuses within this time; one with support sends nothing yet.
REFUSAL_SECONDS = 0.25
STREAM_AGAIN_SECONDS = 60.0
Call = grpc.aio.StreamStreamCall[control_pb2.ControlMessage, control_pb2.ControlMessage]
T = TypeVar("T")


class StreamLink:
    def __init__(self, call: Call, calls: TunnelServer, *, is_stale: Callable[[], bool]) -> None:
        self._call = call
        self._calls = calls
        self._is_stale = is_stale
        self.leaving = self.over = False
        self._numbers = count(1)
        self._writing = asyncio.Lock()
        self._registered: asyncio.Queue[control_pb2.RegisterNodeResponse] = asyncio.Queue(1)
        self._beats: dict[int, asyncio.Future[control_pb2.HeartbeatResponse]] = {}

    @property
    def is_stale(self) -> bool:
        return self._is_stale()

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        request.features.append(feature.CONTROL_STREAM)
        await self._await_refusal()
        while not self._registered.empty():  # late or unexpected responses
            self._registered.get_nowait()
        try:
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                await self._send(control_pb2.ControlMessage(register=request))
                return await self._registered.get()
        except TimeoutError as err:
            raise SilentStreamError("no response to the registration on the stream") from err

    async def _await_refusal(self) -> None:
        """Wait for a refusal before the first write: a concurrent write would lose its status."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_SECONDS):
                await self._call.initial_metadata()

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        number = next(self._numbers)
        answer: asyncio.Future[control_pb2.HeartbeatResponse]
        answer = self._beats[number] = asyncio.get_running_loop().create_future()
        message = control_pb2.ControlMessage(heartbeat=request, number=number, moving=self.leaving)
        try:
            # The deadline includes the write: a scheduler that does not read its stream blocks it.
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                await self._send(message)
                return await answer
        except TimeoutError as err:
            raise SchedulerLostError("no response to a heartbeat on the stream") from err
        finally:
            del self._beats[number]

    async def listen(self, group: asyncio.TaskGroup) -> None:
        """Process messages until the stream ends. Raises SchedulerLostError unless the link is being left."""
        try:
            await self._listen(group)
        except SchedulerLostError:
            self.over = True
            if not self.leaving:
                raise
            self._calls.cancel_calls(self._reply)

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        try:
            async for message in self._call:
                self._take(message, group)
        except grpc.aio.AioRpcError as err:
            raise _loss(err.code(), err.details()) from err
        raise _loss(grpc.StatusCode.OK)

    def _take(self, message: control_pb2.ControlMessage, group: asyncio.TaskGroup) -> None:
        match message.WhichOneof("message"):
            case "registered":
                with suppress(asyncio.QueueFull):  # one response per registration
                    self._registered.put_nowait(message.registered)
            case "heartbeat_answer":
                answer = self._beats.get(message.number)
                if answer is not None and not answer.done():
                    answer.set_result(message.heartbeat_answer)
            case "call":
                self._calls.handle(message.call, self._reply, group)

    async def _reply(self, reply: control_pb2.StreamReply) -> None:
        try:
            await self._send(control_pb2.ControlMessage(reply=reply))
        except SchedulerLostError:
            if not self.leaving:
                raise

    async def _send(self, message: control_pb2.ControlMessage) -> None:
        try:
            async with self._writing:
                await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as err:
            raise _loss(await self._call.code(), await self._call.details()) from err


def _loss(code: grpc.StatusCode, details: str | None = None) -> SchedulerLostError:
    """The error for the end of the stream, noticed by a read or by a write."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return NoStreamError("the scheduler does not support the control stream")
    if code is grpc.StatusCode.OK:
        return SchedulerLostError("the scheduler closed the stream")
    return SchedulerLostError(f"{code.name}: {details}")


def connect_stream(
    calls: TunnelServer,
    dial: Dial,
    *,
    certificate: Callable[[], object],
) -> Connect:
    """Connect with the control stream if the scheduler supports it, otherwise with unary calls.

    `certificate` returns the certificate that `dial` uses now.
    """
    plain: dict[str, float] = {}  # addresses, and for how many seconds they get unary calls

    @asynccontextmanager
    async def connect(address: str) -> AsyncIterator[Link]:
        if (seconds := plain.pop(address, None)) is not None:
            async with connect_unary(address, dial, provisional_seconds=seconds) as link:
                yield link
            return
        try:
            async with _open(address, calls, dial, certificate) as link:
                yield link
        except NoStreamError as err:
            is_silent = isinstance(err, SilentStreamError)
            plain[address] = STREAM_AGAIN_SECONDS if is_silent else float("inf")
            raise

    return connect


@asynccontextmanager
async def _open(
    address: str, calls: TunnelServer, dial: Dial, certificate: Callable[[], object]
) -> AsyncIterator[Link]:
    made_with = certificate()
    async with dial(address) as channel:
        stub: Any = control_pb2_grpc.AgentControlStub(parsed(channel))
        call: Call = stub.ControlStream()
        link = StreamLink(call, calls, is_stale=lambda: certificate() is not made_with)
        try:
            # A loss is raised itself, so that callers need not handle exception groups.
            async with task_group(prefer=SchedulerLostError) as group:
                listener = group.create_task(link.listen(group))
                try:
                    yield link
                finally:
                    listener.cancel()
        finally:
            call.cancel()


class SchedulerLinks:
    """The connections to one scheduler, with a switch to a new one without a gap.

    A new link is registered before the old one is released. An old link stays open until its calls have
    ended, for example a followed log. Only the newest link carries heartbeats.
    """

    def __init__(self, connect: Connect, address: str) -> None:
        self._connect = connect
        self._address = address
        self._held: list[tuple[Link, AsyncExitStack]] = []

    @property
    def current(self) -> Link:
        return self._held[-1][0]

    async def __aenter__(self) -> Self:
        held = AsyncExitStack()
        self._held.append((await held.enter_async_context(self._connect(self._address)), held))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with AsyncExitStack() as all_held:
            for _, held in self._held:
                all_held.push_async_exit(held)
            if error is not None:
                raise error  # each link maps its own loss to an error

    async def switch(self, join: Callable[[Link], Awaitable[T]]) -> T:
        """Open a new link and return the result of `join` on it. If it raises, the old link stays in use."""
        async with AsyncExitStack() as new:
            link = await new.enter_async_context(self._connect(self._address))
            joined = await join(link)
            self._held.append((link, new.pop_all()))
        return joined

    async def close_idle(self) -> None:
        for link, held in self._held[:-1]:
            if link.over:
                self._held.remove((link, held))
                await held.aclose()
