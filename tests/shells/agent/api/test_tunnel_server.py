"""Calls through the control stream: an invalid call affects only itself."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from builders import a_supervisor
from persys.agent.api.tunnel_server import OPEN_CALLS_MAX, TunnelServer
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceServicer
from persys.wire.gen.control.v1 import control_pb2

DEADLINE_SECONDS = 10.0


class Api(AgentServiceServicer):
    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def GetWorkloadStatus(  # noqa: N802
        self, request: agent_pb2.GetWorkloadStatusRequest, context: Any
    ) -> agent_pb2.GetWorkloadStatusResponse:
        await self.gate.wait()
        return agent_pb2.GetWorkloadStatusResponse(status=agent_pb2.WorkloadStatus(id=request.id))

    async def Exec(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ExecInput], context: Any
    ) -> None:
        async for _ in requests:
            await self.gate.wait()


class Peer:
    """The scheduler side of the stream."""

    def __init__(self, api: Api, group: asyncio.TaskGroup) -> None:
        self.api = api
        self.calls = TunnelServer(api, a_supervisor())
        self._group = group
        self._replies: asyncio.Queue[control_pb2.StreamReply] = asyncio.Queue()

    async def _send(self, reply: control_pb2.StreamReply) -> None:
        await self._replies.put(reply)

    def call(self, call_id: int, **fields: Any) -> None:
        call = control_pb2.StreamCall(id=call_id, **fields)
        self.calls.handle(call, self._send, self._group)

    def ask(self, call_id: int, request: bytes = b"") -> None:
        self.call(call_id, method="GetWorkloadStatus", request=request)

    async def reply(self) -> control_pb2.StreamReply:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await self._replies.get()

    async def refusal(self) -> grpc.StatusCode:
        reply = await self.reply()
        return next(code for code in grpc.StatusCode if code.value[0] == reply.code)


async def works(peer: Peer) -> bool:
    """Whether another call succeeds."""
    peer.ask(999, agent_pb2.GetWorkloadStatusRequest(id="web").SerializeToString())
    reply = await peer.reply()
    return reply.id == 999 and not reply.code


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with asyncio.TaskGroup() as group:
        created = Peer(Api(), group)
        yield created
        created.calls.cancel_calls(created._send)


async def test_a_request_that_cannot_be_parsed_is_refused(peer: Peer) -> None:
    peer.ask(1, b"\xff\xff\xff")

    assert await peer.refusal() is grpc.StatusCode.INVALID_ARGUMENT
    assert await works(peer)


async def test_a_request_over_a_limit_is_refused(peer: Peer) -> None:
    peer.ask(1, agent_pb2.GetWorkloadStatusRequest(id="x" * 5000).SerializeToString())

    assert await peer.refusal() is grpc.StatusCode.INVALID_ARGUMENT
    assert await works(peer)


@pytest.mark.parametrize("window", [-1, -(2**31), 2**31 - 1])
async def test_a_window_out_of_range_is_refused(peer: Peer, window: int) -> None:
    peer.call(1, method="Exec", window=window)

    assert await peer.refusal() is grpc.StatusCode.INVALID_ARGUMENT
    assert await works(peer)


async def test_an_acknowledgement_of_unsent_messages_is_refused(peer: Peer) -> None:
    peer.call(1, method="Exec", window=4)
    await asyncio.sleep(0)

    peer.call(1, taken=2**31 - 1)

    assert await peer.refusal() is grpc.StatusCode.INVALID_ARGUMENT
    assert await works(peer)


async def test_more_requests_than_the_window_allows_end_the_call(peer: Peer) -> None:
    peer.api.gate.clear()
    peer.call(1, method="Exec", window=4)
    await asyncio.sleep(0)
    for _ in range(100):
        peer.call(1, more=True)
    peer.api.gate.set()

    assert await peer.refusal() is grpc.StatusCode.INVALID_ARGUMENT
    assert await works(peer)


async def test_a_call_with_an_id_that_is_in_use_is_refused(peer: Peer) -> None:
    peer.api.gate.clear()
    peer.ask(1)
    peer.ask(1)

    assert await peer.refusal() is grpc.StatusCode.ALREADY_EXISTS
    peer.api.gate.set()
    assert not (await peer.reply()).code


async def test_calls_beyond_the_limit_are_refused(peer: Peer) -> None:
    peer.api.gate.clear()
    for number in range(OPEN_CALLS_MAX + 1):
        peer.ask(number + 1)

    assert await peer.refusal() is grpc.StatusCode.RESOURCE_EXHAUSTED
    peer.api.gate.set()
