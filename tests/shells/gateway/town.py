"""A gateway in this process, seen only through its ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from persys.gateway.app import Gateway
from persys.gateway.settings import GatewaySettings
from persys.infra.clock import SystemClock
from persys.infra.http_server import HttpLimits
from persys.infra.tls import Tls

LIMITS = HttpLimits(closing_seconds=2.0)


def quiet(**changes: Any) -> GatewaySettings:
    values: dict[str, Any] = {
        "addr": "127.0.0.1",
        "port": 0,
        "public_addr": "127.0.0.1",
        "public_port": 0,
        "insecure": True,
        "requests_per_second": 0.0,
        "audit_db": "memory",
    }
    return GatewaySettings(**(values | changes))


class House:
    """The gateway, and somebody who asks it."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.session = session

    async def ask(self, method: str, path: str, **how: Any) -> tuple[int, Any]:
        """The status, and what the JSON says."""
        async with self.session.request(method, path, **how) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str, **how: Any) -> tuple[int, Any]:
        return await self.ask("GET", path, **how)


@asynccontextmanager
async def a_gateway(
    settings: GatewaySettings, *, tls: Tls | None = None, limits: HttpLimits = LIMITS
) -> AsyncIterator[House]:
    gateway = Gateway(settings, SystemClock(), tls, limits=limits)
    await gateway.start()
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(gateway.run())
            base = f"http{'s' if tls else ''}://127.0.0.1:{gateway.port}"
            timeout = aiohttp.ClientTimeout(total=20)
            async with aiohttp.ClientSession(base, timeout=timeout) as session:
                yield House(gateway, session)
            running.cancel()
    finally:
        await gateway.stop()


def a_container(image: str = "nginx", **more: Any) -> dict[str, Any]:
    return {
        "spec": {
            "type": "container",
            "resources": {"cpu_millicores": 100, "memory_mb": 64},
            "container": {"image": image},
        },
        **more,
    }
