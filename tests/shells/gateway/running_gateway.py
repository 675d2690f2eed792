"""A gateway in the test process, used only through its ports."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.typedefs import Middleware

from persys.gateway.app import Gateway
from persys.gateway.settings import GatewaySettings
from persys.infra.atomic_files import CertificateFiles
from persys.infra.clock import Clock, SystemClock
from persys.infra.net.listener import HttpLimits
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from root_ca import Root

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


class RunningGateway:
    """A running gateway and an HTTP client."""

    def __init__(self, gateway: Gateway, session: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.session = session

    async def ask(self, method: str, path: str, **how: Any) -> tuple[int, Any]:
        """The status and the decoded JSON."""
        async with self.session.request(method, path, **how) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str, **how: Any) -> tuple[int, Any]:
        return await self.ask("GET", path, **how)


@asynccontextmanager
async def a_gateway(
    settings: GatewaySettings,
    *,
    tls: Tls | None = None,
    limits: HttpLimits = LIMITS,
    clock: Clock | None = None,
    around: Middleware | None = None,
) -> AsyncIterator[RunningGateway]:
    """`around` wraps every request and its handler."""
    gateway = Gateway(settings, clock or SystemClock(), tls, limits=limits)
    if around is not None:
        for server in (gateway._listener, gateway._public):
            server._runner.app.middlewares.append(around)
    await gateway.start()
    try:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(gateway.run())
            base = f"http{'s' if tls else ''}://127.0.0.1:{gateway.port}"
            timeout = aiohttp.ClientTimeout(total=20)
            async with aiohttp.ClientSession(base, timeout=timeout) as session:
                yield RunningGateway(gateway, session)
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


def client_context(root: Root, files: CertificateFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=root.pem.decode())
    context.check_hostname = False
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


async def request_as(
    api: RunningGateway, root: Root, role: Role | None, method: str, path: str, **how: Any
) -> tuple[int, Any]:
    files = root.write(role, "alice") if role is not None else None
    return await api.ask(method, path, ssl=client_context(root, files), **how)
