"""The two calls that an agent makes to a scheduler, and how they travel over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import grpc

from persys.errors import UnavailableError
from persys.infra.answers import parsed
from persys.infra.rpc import new_channel
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

CALL_DEADLINE_SECONDS = 5.0

Answer = TypeVar("Answer")


class SchedulerLostError(UnavailableError):
    """The scheduler gave no answer, or does not know this node: join again."""


class NoStreamError(SchedulerLostError):
    """It answers, but not on streams: speak to it by plain calls."""


class SilentStreamError(NoStreamError):
    """No answer on the stream: it may know streams and be slow, so a stream is tried again later."""


class Link(Protocol):
    """Raises SchedulerLostError when there was no answer in time."""

    leaving: bool  # this side goes over to another link; what is under way goes on to its end

    @property
    def over(self) -> bool:
        """Nothing is under way on it any more."""

    @property
    def is_old(self) -> bool:
        """Whether another one should take its place: its certificate was replaced, or it is provisional."""

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse: ...

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse: ...


Connect = Callable[[str], AbstractAsyncContextManager[Link]]
Dial = Callable[[str], grpc.aio.Channel]


class GrpcLink:
    """Plain calls. Each goes over the newest connection by itself, whatever certificate that has."""

    def __init__(
        self, stub: control_pb2_grpc.AgentControlStub, *, provisional_seconds: float = float("inf")
    ) -> None:
        """After `provisional_seconds` another link should take its place."""
        # The stub's types are the synchronous ones; with an aio channel its calls are awaited.
        self._stub = stub
        self._time = asyncio.get_running_loop().time
        self._old_at = self._time() + provisional_seconds
        self.leaving = False

    @property
    def over(self) -> bool:
        return self.leaving

    @property
    def is_old(self) -> bool:
        return self._time() >= self._old_at

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        return await _answer(self._stub.RegisterNode(request, timeout=CALL_DEADLINE_SECONDS))

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        return await _answer(self._stub.Heartbeat(request, timeout=CALL_DEADLINE_SECONDS))


@asynccontextmanager
async def over_grpc(
    address: str, dial: Dial = new_channel, *, provisional_seconds: float = float("inf")
) -> AsyncIterator[Link]:
    async with dial(address) as channel:
        yield GrpcLink(
            control_pb2_grpc.AgentControlStub(parsed(channel)),
            provisional_seconds=provisional_seconds,
        )


async def _answer(call: Awaitable[Answer]) -> Answer:
    try:
        return await call
    except grpc.aio.AioRpcError as err:
        raise SchedulerLostError(f"{err.code().name}: {err.details()}") from err
