from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from persys.errors import SettingsError
from persys.infra.telemetry.side_server import SideServer

HEALTH: dict[str, Any] = {}


@pytest.fixture
async def address() -> AsyncIterator[str]:
    registry = CollectorRegistry()
    Counter("persys_seen", "How often", registry=registry).inc(3)
    HEALTH.clear()
    HEALTH.update(status="ok", mode="normal")
    server = SideServer(registry=registry, health=lambda: HEALTH)
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
    second = SideServer(registry=CollectorRegistry(), health=lambda: HEALTH)

    with pytest.raises(SettingsError, match=f"metrics port {port} cannot be used"):
        await second.start("127.0.0.1", port)


async def test_a_port_that_cannot_exist_is_a_settings_error() -> None:
    server = SideServer(registry=CollectorRegistry(), health=lambda: HEALTH)

    with pytest.raises(SettingsError, match="metrics port 99999 cannot be used"):
        await server.start("127.0.0.1", 99999)
