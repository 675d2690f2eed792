"""The calls of an agent to a scheduler (register, heartbeat), and their unary gRPC transport."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import grpc

from persys.errors import UnavailableError
from persys.infra.rpc.parsed_replies import parsed
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

CALL_DEADLINE_SECONDS = 5.0

Answer = TypeVar("Answer")


class SchedulerLostError(UnavailableError):
    """The scheduler does not respond, or does not know this node: register again."""


class NoStreamError(SchedulerLostError):
    """The scheduler does not support the control stream: use unary calls."""


class SilentStreamError(NoStreamError):
    """No response on the stream: the scheduler may be slow, so the stream is retried later."""


class Link(Protocol):
    """A connection to a scheduler. Calls raise SchedulerLostError if there is no response in time."""

    leaving: bool  # the agent switches to another link; open calls run to their end

    @property
    def over(self) -> bool:
        """Whether no call is open on it any more."""

    @property
    def is_stale(self) -> bool:
        """Whether it should be replaced: its certificate was renewed, or it was provisional."""

    async def register(
        self, request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse: ...

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse: ...


Connect = Callable[[str], AbstractAsyncContextManager[Link]]
Dial = Callable[[str], grpc.aio.Channel]


class UnaryLink:
    """Unary calls. Each uses the current connection and certificate of the channel."""

    def __init__(
        self, stub: control_pb2_grpc.AgentControlStub, *, provisional_seconds: float = float("inf")
    ) -> None:
        """After `provisional_seconds` the link should be replaced."""
        # The stub has synchronous types; with an aio channel its calls are awaited.
        self._stub = stub
        self._time = asyncio.get_running_loop().time
        self._old_at = self._time() + provisional_seconds
        self.leaving = False

    @property
    def over(self) -> bool:
        return self.leaving

    @property
    def is_stale(self) -> bool:
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
async def connect_unary(
    address: str, dial: Dial, *, provisional_seconds: float = float("inf")
) -> AsyncIterator[Link]:
    async with dial(address) as channel:
        yield UnaryLink(
            control_pb2_grpc.AgentControlStub(parsed(channel)),
            provisional_seconds=provisional_seconds,
        )


async def _answer(call: Awaitable[Answer]) -> Answer:
    try:
        return await call
    except grpc.aio.AioRpcError as err:
        raise SchedulerLostError(f"{err.code().name}: {err.details()}") from err
