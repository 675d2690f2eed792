import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from persys.errors import SettingsError
from persys.infra.rpc.grpc_server import new_channel, new_server, start_server
from persys.infra.rpc.message_sizes import MESSAGE_BYTES_MAX
from persys.wire.gen.control.v1 import control_pb2

SERVICE = "persys.control.v1.AgentControl"


async def echo_node(
    request: control_pb2.GetNodeRequest, _context: object
) -> control_pb2.GetNodeResponse:
    return control_pb2.GetNodeResponse(node=control_pb2.NodeView(node_id=request.node_id))


async def get_node(channel: grpc.aio.Channel, node_id: str) -> str:
    call: grpc.aio.UnaryUnaryMultiCallable[
        control_pb2.GetNodeRequest, control_pb2.GetNodeResponse
    ] = channel.unary_unary(
        f"/{SERVICE}/GetNode",
        request_serializer=control_pb2.GetNodeRequest.SerializeToString,
        response_deserializer=control_pb2.GetNodeResponse.FromString,
    )
    response = await call(control_pb2.GetNodeRequest(node_id=node_id), timeout=30)
    return response.node.node_id


async def send_bytes(channel: grpc.aio.Channel, method: str, content: bytes) -> bytes:
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
        f"/{SERVICE}/{method}"
    )
    return await call(content, timeout=5)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = new_server()
    get_node_handler = grpc.unary_unary_rpc_method_handler(
        echo_node,
        request_deserializer=control_pb2.GetNodeRequest.FromString,
        response_serializer=control_pb2.GetNodeResponse.SerializeToString,
    )
    list_nodes_handler = grpc.unary_unary_rpc_method_handler(
        list_oversized,
        request_deserializer=control_pb2.ListNodesRequest.FromString,
        response_serializer=control_pb2.ListNodesResponse.SerializeToString,
    )
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "GetNode": get_node_handler,
        "ListNodes": list_nodes_handler,
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    yield await start_server(server, SERVICE, host="127.0.0.1", port=0)
    await server.stop(None)


@pytest.fixture
async def channel(port: int) -> AsyncIterator[grpc.aio.Channel]:
    async with new_channel(f"127.0.0.1:{port}") as channel:
        yield channel


async def is_serving(channel: grpc.aio.Channel, service: str) -> bool:
    response = await health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service=service), timeout=5
    )
    return bool(response.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_the_health_service_reports_serving(channel: grpc.aio.Channel, service: str) -> None:
    assert await is_serving(channel, service)


async def test_reflection_lists_the_service(channel: grpc.aio.Channel) -> None:
    call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=5
    )
    response = await call.read()

    names = {service.name for service in response.list_services_response.service}
    assert names == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_a_second_server_on_the_port_is_refused_by_name(port: int) -> None:
    second = new_server()

    with pytest.raises(SettingsError, match=f"gRPC port {port} cannot be used"):
        await start_server(second, SERVICE, host="127.0.0.1", port=port)
    await second.stop(None)


@pytest.mark.parametrize("port", [-1, 99999])
async def test_a_port_that_cannot_exist_is_refused_by_name(port: int) -> None:
    server = new_server()

    with pytest.raises(SettingsError, match=f"gRPC port {port} cannot be used"):
        await start_server(server, SERVICE, host="127.0.0.1", port=port)
    await server.stop(None)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_an_ipv6_address_is_accepted_with_or_without_brackets(host: str) -> None:
    server = new_server()
    port = await start_server(server, SERVICE, host=host, port=0)

    async with new_channel(f"[::1]:{port}") as channel:
        assert await is_serving(channel, SERVICE)
    await server.stop(None)


async def test_invalid_bytes_on_the_port_do_not_stop_the_server(
    port: int, channel: grpc.aio.Channel
) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", os.urandom(4096)):
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            await writer.drain()
            writer.close()

    assert await is_serving(channel, SERVICE)


async def test_an_invalid_message_is_refused_and_the_next_one_served(
    channel: grpc.aio.Channel,
) -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await send_bytes(channel, "GetNode", b"\xff\xff\xff")

    assert await get_node(channel, "n1") == "n1"


async def list_oversized(
    _request: control_pb2.ListNodesRequest, _context: object
) -> control_pb2.ListNodesResponse:
    node = control_pb2.NodeView(node_id="n" * MESSAGE_BYTES_MAX)
    return control_pb2.ListNodesResponse(nodes=[node])


async def test_only_responses_of_trusted_servers_may_exceed_the_message_limit(port: int) -> None:
    async with new_channel(f"127.0.0.1:{port}") as channel:
        assert len(await send_bytes(channel, "ListNodes", b"")) > MESSAGE_BYTES_MAX

    async with new_channel(f"127.0.0.1:{port}", answer_bytes_max=MESSAGE_BYTES_MAX) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await send_bytes(channel, "ListNodes", b"")
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_an_unknown_method_is_unimplemented(channel: grpc.aio.Channel) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await send_bytes(channel, "Fly", b"")

    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_messages_up_to_the_limit_pass_in_both_directions(channel: grpc.aio.Channel) -> None:
    long = "n" * (MESSAGE_BYTES_MAX - 1024)

    assert await get_node(channel, long) == long
