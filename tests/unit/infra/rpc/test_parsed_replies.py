"""Responses that cannot be parsed fail their call, and nothing is logged."""

import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import grpc
import pytest

from persys.infra.rpc.grpc_server import new_channel
from persys.infra.rpc.parsed_replies import CANNOT_BE_PARSED, parsed
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceStub

SERVICE = "persys.agent.v1.AgentService"
GARBAGE = b"\xff\xff\xff"
GOOD = agent_pb2.LogChunk(data=b"a line").SerializeToString()


async def answer(_request: bytes, _context: Any) -> bytes:
    return GARBAGE


async def answers(_request: bytes, context: Any) -> None:
    await context.write(GOOD)
    await context.write(GARBAGE)


async def echo(requests: AsyncIterator[bytes], context: Any) -> None:
    async for request in requests:
        await context.write(request)


@pytest.fixture
async def stub() -> AsyncIterator[Any]:
    """A stub of a server that responds with arbitrary bytes."""
    server = grpc.aio.server()
    handlers: dict[str, Any] = {
        "ListWorkloads": grpc.unary_unary_rpc_method_handler(answer),
        "StreamLogs": grpc.unary_stream_rpc_method_handler(answers),
        "Exec": grpc.stream_stream_rpc_method_handler(echo),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with new_channel(f"127.0.0.1:{port}") as channel:
        yield AgentServiceStub(parsed(channel))
    await server.stop(None)


async def problem_of(work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await work
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    return failed.value.details() or ""


async def test_a_response_that_cannot_be_parsed_fails_its_call(
    stub: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> Any:
        return await stub.ListWorkloads(agent_pb2.ListWorkloadsRequest(), timeout=10)

    with caplog.at_level(logging.WARNING):
        assert await problem_of(ask()) == CANNOT_BE_PARSED
    assert caplog.records == []


async def test_a_stream_has_the_responses_before_the_one_that_cannot_be_parsed(stub: Any) -> None:
    stream = stub.StreamLogs(agent_pb2.LogsRequest(workload_id="web"), timeout=10)

    assert (await anext(stream)).data == b"a line"
    assert await problem_of(anext(stream)) == CANNOT_BE_PARSED


async def test_other_attributes_are_those_of_the_wrapped_call(stub: Any) -> None:
    stream = stub.Exec(timeout=10)

    await stream.write(agent_pb2.ExecInput())
    assert await stream.read() == agent_pb2.ExecOutput()
    await stream.done_writing()
    assert await stream.code() is grpc.StatusCode.OK
