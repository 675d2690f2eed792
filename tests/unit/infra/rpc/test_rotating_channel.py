"""Channels after a renewal: new calls on a new connection, old calls until their end."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from persys.infra.rpc.grpc_server import new_server, start_server
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from root_ca import Root

SERVICE = "grpc.health.v1.Health"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def mine(root: Root) -> Tls:
    return root.tls(Role.AGENT, "n1")


@pytest.fixture
async def port(root: Root) -> AsyncIterator[int]:
    server = new_server()
    tls = root.tls(Role.SCHEDULER, "s1")
    yield await start_server(
        server, SERVICE, host="127.0.0.1", port=0, certificates=tls.certificates
    )
    await server.stop(0)


def swap(root: Root, tls: Tls) -> None:
    root.write(Role.AGENT, "n1")
    assert tls.certificates.reload()


async def test_a_stream_continues_after_a_renewal_and_new_calls_use_a_new_connection(
    root: Root, port: int, mine: Tls
) -> None:
    async with mine.channel(f"127.0.0.1:{port}", Role.SCHEDULER) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watching = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == 1

        swap(root, mine)
        response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)

        assert response.status == 1
        assert not watching.done()
        assert channel.left == 1


async def test_an_old_connection_is_closed_after_its_last_call(
    root: Root, port: int, mine: Tls
) -> None:
    async with mine.channel(f"127.0.0.1:{port}", Role.SCHEDULER) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watching = stub.Watch(health_pb2.HealthCheckRequest())
        await watching.read()
        swap(root, mine)
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)

        watching.cancel()
        await watching.code()
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)

        assert channel.left == 0


async def test_every_method_uses_the_renewed_certificate(root: Root, port: int, mine: Tls) -> None:
    async with mine.channel(f"127.0.0.1:{port}", Role.SCHEDULER) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            swap(root, mine)
            assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)).status == 1
        assert channel.get_state() is grpc.ChannelConnectivity.READY


async def test_another_server_of_the_same_role_is_refused(root: Root, mine: Tls) -> None:
    server = new_server()
    other = root.tls(Role.AGENT, "n2")
    port = await start_server(
        server, SERVICE, host="127.0.0.1", port=0, certificates=other.certificates
    )
    try:
        async with mine.channel(f"127.0.0.1:{port}", Role.AGENT, "n3") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as err:
                await health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=10
                )
        async with mine.channel(f"127.0.0.1:{port}", Role.AGENT, "n2") as channel:
            request = health_pb2.HealthCheckRequest()
            assert (await health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)).status
    finally:
        await server.stop(0)

    assert err.value.code() is grpc.StatusCode.UNAVAILABLE
