"""The control stream from the agent's side: one connection outwards, on which the scheduler calls back.

A scheduler that does not know the stream answers UNIMPLEMENTED, or says nothing to a registration. It then
gets plain calls until that connection breaks. Silence may also be slowness: after it the stream is tried
again every minute, because an agent behind NAT gets its orders in no other way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import grpc

from persys.agent.calls import StreamedCalls
from persys.agent.link import (
    CALL_DEADLINE_SECONDS,
    Connect,
    Dial,
    Link,
    NoStreamError,
    SchedulerLostError,
    SilentStreamError,
    over_grpc,
)
from persys.infra.answers import parsed
from persys.infra.rpc import new_channel
from persys.infra.together import first_of
from persys.model import feature
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

# A scheduler without streams says so by now; one with them need not say anything before it is spoken to.
REFUSAL_SECONDS = 0.25
STREAM_AGAIN_SECONDS = 60.0

Call = grpc.aio.StreamStreamCall[control_pb2.ControlMessage, control_pb2.ControlMessage]


class StreamLink:
    def __init__(
        self, call: Call, calls: StreamedCalls, *, is_old: Callable[[], bool] = lambda: False
    ) -> None:
        self._call = call
        self._calls = calls
        self._is_old = is_old
        self.leaving = self.over = False
        self._numbers = count(1)
        self._writing = asyncio.Lock()
        self._registered: asyncio.Queue[control_pb2.RegisterNodeResponse] = asyncio.Queue(1)
        self._beats: dict[int, asyncio.Future[control_pb2.HeartbeatResponse]] = {}

    @property
    def is_old(self) -> bool:
        return self._is_old()

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        request.features.append(feature.CONTROL_STREAM)
        await self._await_refusal()
        while not self._registered.empty():  # came unasked, or too late
            self._registered.get_nowait()
        await self._send(control_pb2.ControlMessage(register=request))
        try:
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                return await self._registered.get()
        except TimeoutError as err:
            raise SilentStreamError("no answer to the registration on the stream") from err

    async def _await_refusal(self) -> None:
        """Why a stream was refused is lost when the refusal crosses something that is being written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_SECONDS):
                await self._call.initial_metadata()

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        number = next(self._numbers)
        answer: asyncio.Future[control_pb2.HeartbeatResponse]
        answer = self._beats[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(
                control_pb2.ControlMessage(heartbeat=request, number=number, moving=self.leaving)
            )
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                return await answer
        except TimeoutError as err:
            raise SchedulerLostError("no answer to a heartbeat on the stream") from err
        finally:
            del self._beats[number]

    async def listen(self, group: asyncio.TaskGroup) -> None:
        """Take what comes until the stream ends: then SchedulerLostError, unless we are leaving it."""
        try:
            await self._listen(group)
        except SchedulerLostError:
            self.over = True
            if not self.leaving:
                raise
            self._calls.drop(self._reply)

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
                with suppress(asyncio.QueueFull):  # one answer to one registration
                    self._registered.put_nowait(message.registered)
            case "heartbeat_answer":
                answer = self._beats.get(message.number)
                if answer is not None and not answer.done():
                    answer.set_result(message.heartbeat_answer)
            case "call":
                self._calls.take(message.call, self._reply, group)

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
    """Why the stream has ended: the same whether it is noticed by writing or by reading."""
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return NoStreamError("it knows no control stream")
    if code is grpc.StatusCode.OK:
        return SchedulerLostError("the scheduler has ended the stream")
    return SchedulerLostError(f"{code.name}: {details}")


def over_stream(
    calls: StreamedCalls,
    dial: Dial = new_channel,
    *,
    certificate: Callable[[], object] = lambda: None,
) -> Connect:
    """Streams where the scheduler knows them, plain calls where it does not.

    `certificate` is the one with which `dial` makes connections now.
    """
    plain: dict[str, float] = {}  # addresses, and for how many seconds they get plain calls

    @asynccontextmanager
    async def connect(address: str) -> AsyncIterator[Link]:
        if (seconds := plain.pop(address, None)) is not None:
            async with over_grpc(address, dial, provisional_seconds=seconds) as link:
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
    address: str, calls: StreamedCalls, dial: Dial, certificate: Callable[[], object]
) -> AsyncIterator[Link]:
    made_with = certificate()
    async with dial(address) as channel:
        stub: Any = control_pb2_grpc.AgentControlStub(parsed(channel))
        call: Call = stub.ControlStream()
        link = StreamLink(call, calls, is_old=lambda: certificate() is not made_with)
        try:
            async with asyncio.TaskGroup() as group:
                listener = group.create_task(link.listen(group))
                try:
                    yield link
                finally:
                    listener.cancel()
        except BaseExceptionGroup as group_error:
            # A loss is told as itself, so that whoever joins again need not know of groups.
            raise first_of(group_error, rather=SchedulerLostError) from None
        finally:
            call.cancel()
