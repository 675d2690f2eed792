"""The ports: gRPC with health and reflection, HTTP for health and metrics, and invalid input on them."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shells.scheduler.harness import Cluster

SERVICE = "persys.control.v1.AgentControl"


async def test_the_grpc_health_service_returns_serving(cluster: Cluster) -> None:
    stub = health_pb2_grpc.HealthStub(cluster.control.channel)
    for name in ("", SERVICE):
        response = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
        assert response.status == health_pb2.HealthCheckResponse.SERVING


async def test_the_service_can_be_discovered_by_reflection(cluster: Cluster) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(cluster.control.channel)
    call = stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10
    )
    names = [
        service.name
        async for response in call
        for service in response.list_services_response.service
    ]

    assert SERVICE in names


async def test_health_shows_the_numbers_of_nodes_and_workloads(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    status, body = await fetch(cluster, "/health")

    assert status == 200
    assert '"status": "ok"' in body
    assert '"service": "persys-scheduler"' in body
    assert '"nodes": 1' in body
    assert '"workloads": 1' in body


async def test_metrics_include_nodes_workloads_calls_and_transactions(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    status, body = await fetch(cluster, "/metrics")

    assert status == 200
    assert 'persys_scheduler_nodes{status="Ready"} 1.0' in body
    assert 'persys_scheduler_workloads{status="Running"} 1.0' in body
    assert 'persys_scheduler_workloads_desired{desired="running"} 1.0' in body
    assert 'persys_scheduler_grpc_requests_total{code="OK",method="ApplyWorkload"} 1.0' in body
    assert f"persys_scheduler_store_transactions_total {cluster.store.transactions}" in body


async def test_invalid_bytes_on_the_port_do_not_affect_other_calls(cluster: Cluster) -> None:
    await cluster.join()
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\x00" * 4096):
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.settings.grpc_port)
        writer.write(garbage)
        await writer.drain()
        async with asyncio.timeout(10):
            await reader.read(1)
        writer.close()
    # A well-formed call with an invalid body.
    call: Callable[..., Awaitable[bytes]] = cluster.control.channel.unary_unary(
        f"/{SERVICE}/ApplyWorkload"
    )
    with pytest.raises(grpc.aio.AioRpcError):
        await call(b"\xff\xff\xff\xff", timeout=10)

    assert (await cluster.control.apply("web")).success
    await cluster.control.until("web", "Running")


async def fetch(cluster: Cluster, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}{path}"
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return response.status, await response.text()
