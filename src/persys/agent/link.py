"""The two calls that an agent makes to a scheduler, and how they travel over gRPC."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import grpc

from persys.errors import UnavailableError
from persys.infra.rpc import new_channel
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

CALL_DEADLINE_SECONDS = 5.0

Answer = TypeVar("Answer")


class SchedulerLostError(UnavailableError):
    """The scheduler gave no answer, or does not know this node: join again."""


class NoStreamError(SchedulerLostError):
    """It answers, but not on streams: speak to it by plain calls."""


class Link(Protocol):
    """Raises SchedulerLostError when there was no answer in time."""

    leaving: bool  # this side goes over to another link; what is under way goes on to its end
    over: bool

    @property
    def is_old(self) -> bool:
        """Whether its connection was made with a certificate that has been replaced."""

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse: ...

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse: ...


Connect = Callable[[str], AbstractAsyncContextManager[Link]]
Dial = Callable[[str], grpc.aio.Channel]


class GrpcLink:
    """Each call goes over the newest connection by itself, so this is never left for another."""

    leaving = over = is_old = False

    def __init__(self, stub: control_pb2_grpc.AgentControlStub) -> None:
        # The stub's types are the synchronous ones; with an aio channel its calls are awaited.
        self._stub = stub

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        return await _answer(self._stub.RegisterNode(request, timeout=CALL_DEADLINE_SECONDS))

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        return await _answer(self._stub.Heartbeat(request, timeout=CALL_DEADLINE_SECONDS))


@asynccontextmanager
async def over_grpc(address: str, dial: Dial = new_channel) -> AsyncIterator[Link]:
    async with dial(address) as channel:
        yield GrpcLink(control_pb2_grpc.AgentControlStub(channel))


async def _answer(call: Awaitable[Answer]) -> Answer:
    try:
        return await call
    except grpc.aio.AioRpcError as err:
        raise SchedulerLostError(f"{err.code().name}: {err.details()}") from err
