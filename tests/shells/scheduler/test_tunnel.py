"""Calls that share one stream: each gets its own answer, in whatever order answers come."""

import asyncio
from typing import Any

import grpc
import pytest

from persys.model.ids import NodeId
from persys.scheduler.streams import Tunnel
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

DEADLINE_SECONDS = 10.0


async def ask(tunnel: Tunnel, workload_id: str, *, timeout: float = DEADLINE_SECONDS) -> str:
    stub: Any = tunnel.stub
    request = agent_pb2.GetWorkloadStatusRequest(id=workload_id)
    answer = await stub.GetWorkloadStatus(request, timeout=timeout)
    return str(answer.status.id)


async def next_call(tunnel: Tunnel) -> control_pb2.StreamCall:
    async with asyncio.timeout(DEADLINE_SECONDS):
        message = await tunnel.outgoing.get()
    assert message is not None
    return message.call


def reply_to(call: control_pb2.StreamCall) -> control_pb2.StreamReply:
    asked = agent_pb2.GetWorkloadStatusRequest.FromString(call.request)
    status = agent_pb2.WorkloadStatus(id=asked.id)
    answer = agent_pb2.GetWorkloadStatusResponse(status=status)
    return control_pb2.StreamReply(id=call.id, response=answer.SerializeToString(), last=True)


async def test_answers_in_another_order_reach_those_who_asked() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask(tunnel, "first"))
        second = group.create_task(ask(tunnel, "second"))
        calls = [await next_call(tunnel), await next_call(tunnel)]
        for call in reversed(calls):
            tunnel.take(reply_to(call))

    assert (first.result(), second.result()) == ("first", "second")


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next() -> None:
    tunnel = Tunnel(NodeId("n1"), takes_calls=True)
    with pytest.raises(grpc.aio.AioRpcError, match="no answer in time"):
        await ask(tunnel, "first", timeout=0.001)
    late = await next_call(tunnel)
    assert (await next_call(tunnel)).cancel
    async with asyncio.TaskGroup() as group:
        second = group.create_task(ask(tunnel, "second"))
        call = await next_call(tunnel)
        tunnel.take(reply_to(late))
        tunnel.take(reply_to(call))

    assert second.result() == "second"
