"""Requests that cannot be parsed are refused as the caller's error, and nothing is logged."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from builders import a_supervisor
from persys.infra.rpc.authorized_service import AuthorizedService
from persys.infra.rpc.grpc_server import new_channel, new_server, start_server
from persys.wire.gen.agent.v1 import agent_pb2

SERVICE = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
GARBAGE = b"\xff\xff\xff"


class Api:
    async def GetWorkloadStatus(  # noqa: N802
        self, request: agent_pb2.GetWorkloadStatusRequest, _context: object
    ) -> agent_pb2.GetWorkloadStatusResponse:
        return agent_pb2.GetWorkloadStatusResponse(status=agent_pb2.WorkloadStatus(id=request.id))

    async def StreamLogs(  # noqa: N802
        self, request: agent_pb2.LogsRequest, _context: object
    ) -> AsyncIterator[agent_pb2.LogChunk]:
        yield agent_pb2.LogChunk(data=request.workload_id.encode())


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = new_server()
    AuthorizedService(Api(), SERVICE, None, a_supervisor()).add_to(server)
    port = await start_server(server, SERVICE.full_name, host="127.0.0.1", port=0)
    async with new_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def status_of(channel: grpc.aio.Channel, request: bytes) -> agent_pb2.WorkloadStatus:
    call: Any = channel.unary_unary(f"/{SERVICE.full_name}/GetWorkloadStatus")
    response: bytes = await call(request, timeout=10)
    return agent_pb2.GetWorkloadStatusResponse.FromString(response).status


async def test_a_request_that_cannot_be_parsed_is_invalid(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(grpc.aio.AioRpcError) as refused:
        await status_of(channel, GARBAGE)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "GetWorkloadStatusRequest" in (refused.value.details() or "")
    assert caplog.records == []


async def test_a_request_of_a_stream_that_cannot_be_parsed_is_invalid(
    channel: grpc.aio.Channel,
) -> None:
    call: Any = channel.unary_stream(f"/{SERVICE.full_name}/StreamLogs")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(aiter(call(GARBAGE, timeout=10)))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_method_without_a_handler_is_unimplemented(channel: grpc.aio.Channel) -> None:
    call: Any = channel.unary_unary(f"/{SERVICE.full_name}/ListImages")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(b"", timeout=10)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_request_that_can_be_parsed_is_served(channel: grpc.aio.Channel) -> None:
    request = agent_pb2.GetWorkloadStatusRequest(id="web")

    assert (await status_of(channel, request.SerializeToString())).id == "web"
