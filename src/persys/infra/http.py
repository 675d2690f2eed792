"""The small HTTP server beside each gRPC port: /health and /metrics."""

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from persys.errors import SettingsError


class SideServer:
    def __init__(
        self, *, registry: CollectorRegistry, health: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._registry = registry
        self._health = health
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port (useful when asked for port 0)."""
        app = web.Application()
        app.router.add_get("/health", self._answer_health)
        app.router.add_get("/metrics", self._answer_metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except (OSError, OverflowError) as err:
            await self.stop()
            raise SettingsError(f"metrics port {port} cannot be used: {err}") from err
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer_health(self, _request: web.Request) -> web.Response:
        health = self._health()
        return web.json_response(health, status=200 if health["status"] == "ok" else 503)

    async def _answer_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )
