import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from persys.errors import SettingsError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.net.listener import HttpLimits
from persys.infra.telemetry.side_server import LIMITS, SideServer

HEALTH: dict[str, Any] = {}


def a_server(
    registry: CollectorRegistry | None = None, *, limits: HttpLimits = LIMITS
) -> SideServer:
    return SideServer(
        supervisor=Supervisor("any", SystemClock(), CollectorRegistry()),
        registry=registry or CollectorRegistry(),
        health=lambda: HEALTH,
        limits=limits,
    )


@pytest.fixture
async def address() -> AsyncIterator[str]:
    registry = CollectorRegistry()
    Counter("persys_seen", "How often", registry=registry).inc(3)
    HEALTH.clear()
    HEALTH.update(status="ok", mode="normal")
    server = a_server(registry)
    port = await server.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}"
    await server.stop()


async def get(url: str) -> tuple[int, str, str]:
    timeout = aiohttp.ClientTimeout(total=5)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return response.status, response.content_type, await response.text()


async def test_health_is_json_with_code_200_when_ok(address: str) -> None:
    assert await get(f"{address}/health") == (
        200,
        "application/json",
        '{"status": "ok", "mode": "normal"}',
    )


async def test_health_is_code_503_when_not_ok(address: str) -> None:
    HEALTH["status"] = "degraded"

    assert (await get(f"{address}/health"))[0] == 503


async def test_metrics_are_in_the_prometheus_format(address: str) -> None:
    status, kind, text = await get(f"{address}/metrics")

    assert (status, kind) == (200, "text/plain")
    assert "persys_seen_total 3.0" in text


async def test_another_path_is_not_found(address: str) -> None:
    assert (await get(f"{address}/other"))[0] == 404


async def test_a_port_in_use_is_a_settings_error_that_names_it(address: str) -> None:
    port = int(address.rsplit(":", 1)[1])
    second = a_server()

    with pytest.raises(SettingsError, match=f"metrics port {port} cannot be used"):
        await second.start("127.0.0.1", port)


async def test_a_port_that_cannot_exist_is_a_settings_error() -> None:
    server = a_server()

    with pytest.raises(SettingsError, match="metrics port 99999 cannot be used"):
        await server.start("127.0.0.1", 99999)


async def exchanged(address: str, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rsplit(":", 1)[1]))
    writer.write(sent)
    async with asyncio.timeout(10):
        response = await reader.read()
    writer.close()
    return response


async def test_a_head_request_has_the_length_and_no_body(address: str) -> None:
    response = await exchanged(address, b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n")

    head, body = response.split(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"")
    assert b"Content-Length: 34" in head


async def test_another_method_is_not_allowed(address: str) -> None:
    request = b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"

    assert (await exchanged(address, request)).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET /health\r\n\r\n", b"400"),
        (b"x" * 20_000, b"431"),
    ],
    ids=["tls", "no version", "no end"],
)
async def test_what_is_not_a_request_is_refused(address: str, sent: bytes, status: bytes) -> None:
    assert (await exchanged(address, sent)).split(b" ")[:2] == [b"HTTP/1.1", status]


async def test_a_request_may_arrive_in_pieces(address: str) -> None:
    port = int(address.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in (b"GET /hea", b"lth HTTP/1.1\r\nHo", b"st: x\r\n\r", b"\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)

    async with asyncio.timeout(10):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


async def test_a_client_that_sends_nothing_is_disconnected() -> None:
    limits = HttpLimits(idle_seconds=0.05)
    server = a_server(limits=limits)
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    await server.stop()


async def test_idle_connections_give_way_to_new_ones() -> None:
    limits = HttpLimits(connections_max=2, connections_per_address_max=2)
    server = a_server(limits=limits)
    port = await server.start("127.0.0.1", 0)
    HEALTH.update(status="ok")
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]

    assert (await get(f"http://127.0.0.1:{port}/health"))[0] == 200
    for _, writer in idle:
        writer.close()
    await server.stop()


async def test_an_unexpected_error_is_code_500_and_the_server_continues(address: str) -> None:
    del HEALTH["status"]
    assert (await get(f"{address}/health"))[0] == 500

    HEALTH["status"] = "ok"
    assert (await get(f"{address}/health"))[0] == 200
