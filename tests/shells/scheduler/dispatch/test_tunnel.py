"""Calls that share one stream: each gets its own reply, in any order of replies."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
import pytest

from persys.infra.rpc.parsed_replies import CANNOT_BE_PARSED
from persys.model.ids import NodeId
from persys.scheduler.dispatch.tunnel import CALLS_MAX, Tunnel
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

DEADLINE_SECONDS = 10.0


async def ask(tunnel: Tunnel, workload_id: str, *, timeout: float = DEADLINE_SECONDS) -> str:
    stub: Any = tunnel.stub
    request = agent_pb2.GetWorkloadStatusRequest(id=workload_id)
    response = await stub.GetWorkloadStatus(request, timeout=timeout)
    return str(response.status.id)


async def next_call(tunnel: Tunnel) -> control_pb2.StreamCall:
    async with asyncio.timeout(DEADLINE_SECONDS):
        message = await tunnel.outgoing.get()
    assert message is not None
    return message.call


def reply_to(call: control_pb2.StreamCall) -> control_pb2.StreamReply:
    request = agent_pb2.GetWorkloadStatusRequest.FromString(call.request)
    status = agent_pb2.WorkloadStatus(id=request.id)
    response = agent_pb2.GetWorkloadStatusResponse(status=status)
    return control_pb2.StreamReply(id=call.id, response=response.SerializeToString(), last=True)


async def test_replies_in_another_order_reach_their_callers() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask(tunnel, "first"))
        second = group.create_task(ask(tunnel, "second"))
        calls = [await next_call(tunnel), await next_call(tunnel)]
        for call in reversed(calls):
            tunnel.take(reply_to(call))

    assert (first.result(), second.result()) == ("first", "second")


async def test_a_late_reply_is_not_delivered_to_the_next_call() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    with pytest.raises(grpc.aio.AioRpcError, match="did not reply in time"):
        await ask(tunnel, "first", timeout=0.001)
    late = await next_call(tunnel)
    assert (await next_call(tunnel)).cancel
    async with asyncio.TaskGroup() as group:
        second = group.create_task(ask(tunnel, "second"))
        call = await next_call(tunnel)
        tunnel.take(reply_to(late))
        tunnel.take(reply_to(call))

    assert second.result() == "second"


async def refused_with(tunnel: Tunnel, reply: control_pb2.StreamReply) -> str:
    """Why a call with this reply fails, while another call succeeds."""
    async with asyncio.TaskGroup() as group:
        bad = group.create_task(failure_of(ask(tunnel, "bad")))
        good = group.create_task(ask(tunnel, "good"))
        first, second = await next_call(tunnel), await next_call(tunnel)
        reply.id = first.id
        tunnel.take(reply)
        tunnel.take(reply_to(second))

    assert good.result() == "good"
    return bad.result()


async def failure_of(call: Coroutine[None, None, str]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.details() or ""


async def test_an_invalid_reply_fails_its_call_only() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)

    why = await refused_with(tunnel, control_pb2.StreamReply(response=b"\xff\xff\xff", last=True))

    assert why == CANNOT_BE_PARSED


async def first_line(tunnel: Tunnel) -> str:
    stub: Any = tunnel.stub
    logs = stub.StreamLogs(agent_pb2.LogsRequest(workload_id="web"), timeout=DEADLINE_SECONDS)
    return str((await anext(logs)).data)


@pytest.mark.parametrize("taken", [2**31 - 1, 17])
async def test_a_window_that_was_never_given_fails_its_call_only(taken: int) -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(failure_of(first_line(tunnel)))
        call = await next_call(tunnel)
        tunnel.take(control_pb2.StreamReply(id=call.id, taken=taken))

    assert "messages that were not sent" in reading.result()


async def test_more_replies_than_the_window_allows_end_the_call() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(failure_of(first_line(tunnel)))
        call = await next_call(tunnel)
        for _ in range(10_000):
            tunnel.take(control_pb2.StreamReply(id=call.id, response=b""))

    assert "more replies than the window allows" in reading.result()


async def test_a_stream_carries_a_bounded_number_of_calls() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    stub: Any = tunnel.stub
    for _ in range(CALLS_MAX):
        stub.StreamLogs(agent_pb2.LogsRequest(workload_id="web"))

    with pytest.raises(grpc.aio.AioRpcError, match="try again later"):
        stub.StreamLogs(agent_pb2.LogsRequest(workload_id="web"))
