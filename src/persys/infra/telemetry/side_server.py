"""The HTTP server for /health and /metrics of each process."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    disable_created_metrics,
    generate_latest,
)

from persys.infra.net.http_server import HttpLimits, HttpServer
from persys.infra.telemetry import tracing

# The creation time of counters is not used and would add one series for each.
disable_created_metrics()  # type: ignore[no-untyped-call]  # its library has no types here

# For monitoring only. One address cannot use all connections.
_BODY_BYTES_MAX = 1024
LIMITS = HttpLimits(
    connections_max=128,
    connections_per_address_max=64,
    idle_seconds=15.0,
    body_window_seconds=5.0,
    unread_seconds=15.0,
    closing_seconds=2.0,
)


class SideServer:
    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        health: Callable[[], Mapping[str, Any]],
        count: Callable[[], Awaitable[None]] | None = None,
        unhealthy_code: int = 503,
        limits: HttpLimits = LIMITS,
    ) -> None:
        """`count` prepares metrics in steps that would block the event loop if they were computed at once.

        `unhealthy_code` is the HTTP status of /health when the status is not ok. 200 prevents a restart of a
        process whose memory must be preserved.
        """
        self._registry = registry
        self._health = health
        self._count = count
        self._unhealthy_code = unhealthy_code
        app = web.Application(client_max_size=_BODY_BYTES_MAX)
        app.router.add_get("/health", self._answer_health)
        app.router.add_get("/metrics", self._answer_metrics)
        self.server = HttpServer(app, limits=limits, context=None, port_name="metrics port")

    async def start(self, host: str, port: int) -> int:
        """Returns the port that is bound (useful for port 0)."""
        return await self.server.start(host, port)

    async def stop(self) -> None:
        await self.server.stop()

    async def _answer_health(self, request: web.Request) -> web.Response:
        with tracing.server_span("GET /health", request.headers.items):
            health = self._health()
        code = 200 if health["status"] == "ok" else self._unhealthy_code
        return web.json_response(health, status=code)

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        with tracing.server_span("GET /metrics", request.headers.items):
            if self._count is not None:
                await self._count()
            body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
