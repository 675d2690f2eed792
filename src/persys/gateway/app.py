"""The composition root: builds and runs the components of the gateway."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web

from persys.gateway.audit import AuditLog
from persys.gateway.dashboard.routes import dashboard_routes
from persys.gateway.database import Database
from persys.gateway.http.authentication import Authenticator, TokenVerifier
from persys.gateway.http.middleware import RequestPipeline, fallback_routes
from persys.gateway.http.rate_limit import BODY_BYTES_MAX, RateLimiter
from persys.gateway.metrics import Metrics
from persys.gateway.routes.exec import exec_routes
from persys.gateway.routes.gateway import gateway_routes
from persys.gateway.routes.openapi import openapi_routes
from persys.gateway.routes.streams import stream_routes
from persys.gateway.routes.unary import UnaryRoutes
from persys.gateway.routes.uploads import upload_routes
from persys.gateway.settings import GatewaySettings
from persys.gateway.tls import obtain_tls, reloading_context
from persys.gateway.upstream.cluster import Cluster
from persys.gateway.upstream.config import ClusterFile, one_cluster, read_clusters
from persys.gateway.usage import UsageHistory
from persys.gateway.webhooks.github import WEBHOOK_BYTES_MAX, Webhooks, read_hooks
from persys.gateway.webhooks.push_queue import PushQueue
from persys.gateway.webhooks.redeploy import PushProcessor, gitops_routes
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock, SystemClock
from persys.infra.gc_tuning import tune_garbage_collector
from persys.infra.net.http_server import HttpServer
from persys.infra.net.listener import HttpLimits
from persys.infra.process import serve
from persys.infra.rpc.grpc_server import new_channel
from persys.infra.tls.tls import Tls
from persys.model.identity import Role

log = structlog.get_logger()

FIND_SECONDS = 5.0
CHANGES_MAX = 4096  # in progress at the same time
FINISH_SECONDS = 10.0  # for requests in progress when the gateway stops


async def run_gateway(settings: GatewaySettings, stop: asyncio.Event) -> None:
    clock = SystemClock()
    tls = await obtain_tls(settings, clock, stop)
    if tls is None and not settings.insecure:
        return
    gateway = Gateway(settings, clock, tls)
    try:
        await gateway.start()
        await serve({"gateway": gateway.run, "garbage": tune_garbage_collector}, stop)
    finally:
        await gateway.stop()


class Gateway:
    def __init__(
        self,
        settings: GatewaySettings,
        clock: Clock,
        tls: Tls | None,
        *,
        limits: HttpLimits | None = None,
    ) -> None:
        """Raises SettingsError for an invalid cluster configuration."""
        self._settings = settings
        self._tls = tls
        self.port = settings.port
        self._stopping = asyncio.Event()
        found = _clusters_of(settings)
        dial = new_channel if tls is None else tls.dial(Role.SCHEDULER, sends_own_identity=True)
        find = partial(_find_service, settings.dns_server)
        self.clusters = {entry.id: Cluster(entry, dial, clock, find) for entry in found.clusters}
        self._clock = clock
        self._metrics = Metrics(self.clusters, tls)
        supervisor = Supervisor("gateway", clock, self._metrics.registry)
        self._owned = OwnedWork(supervisor, limit=CHANGES_MAX)
        self._running = AsyncExitStack()
        self._database = Database(settings.audit_db)
        self._audit = AuditLog(self._database, self._owned, keep=settings.audit_keep)
        self._pushes = PushQueue(self._database, clock, self.clusters, self._owned)
        self._pipeline = RequestPipeline(
            self.clusters,
            found.default,
            identities=Authenticator(tls, clock),
            token_verifier=TokenVerifier(clock),
            rates=RateLimiter(
                clock, per_second=settings.requests_per_second, burst=settings.requests_burst
            ),
            audit=self._audit,
            clock=clock,
            metrics=self._metrics,
            supervisor=supervisor,
            owned=self._owned,
        )
        self._gitops = PushProcessor(self.clusters, clock, self._audit, self._pushes, supervisor)
        self._usage = UsageHistory(
            self.clusters, clock, supervisor, interval=settings.usage_interval
        )
        self._hooks = read_hooks(settings.webhooks)
        limits = limits or HttpLimits(
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
        )
        context = reloading_context(tls) if tls is not None else None
        self._listener = HttpServer(self._app(), limits=limits, context=context)
        self._public = HttpServer(self._public_app(), limits=limits, context=None)
        self.public_port = 0  # not open

    async def start(self) -> None:
        group = await self._running.enter_async_context(asyncio.TaskGroup())
        self._running.callback(group.create_task(self._owned.run()).cancel)
        self.port = await self._listener.start(self._settings.addr, self._settings.port)
        if self._hooks:  # the public port serves webhooks only
            self.public_port = await self._public.start(
                self._settings.public_addr, self._settings.public_port
            )
        log.info(
            "gateway.serving",
            port=self.port,
            public_port=self.public_port,
            clusters=sorted(self.clusters),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._tls is not None:
                group.create_task(self._tls.run())
            for cluster in self.clusters.values():
                group.create_task(cluster.run())
            group.create_task(self._gitops.run())
            group.create_task(self._usage.run())

    async def stop(self) -> None:
        """Refuse new requests, end streams, let running requests finish. A second call does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        await self._public.stop()
        await self._listener.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self._owned.drained()
        await self._running.aclose()
        for cluster in self.clusters.values():
            await cluster.close()
        await self._database.close()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        pipeline, stopping = self._pipeline, self._stopping
        app.router.add_routes(
            [
                *gateway_routes(pipeline, self._metrics, self._audit),
                *openapi_routes(pipeline),
                *self._usage.routes(pipeline),
                *dashboard_routes(pipeline),
                *gitops_routes(pipeline, self._pushes),
                *UnaryRoutes(pipeline, self._clock).all(),
                *stream_routes(pipeline, stopping),
                *upload_routes(pipeline, stopping),
                *exec_routes(pipeline, stopping),
                *fallback_routes(pipeline),
            ]
        )
        return app

    def _public_app(self) -> web.Application:
        app = web.Application(client_max_size=WEBHOOK_BYTES_MAX)
        webhooks = Webhooks(self._pipeline, self._hooks, self._clock, self._pushes)
        app.router.add_routes(webhooks.routes())
        return app


def _clusters_of(settings: GatewaySettings) -> ClusterFile:
    if settings.cluster_config:
        return read_clusters(Path(settings.cluster_config))
    return one_cluster(settings.scheduler_addr)


def _find_service(server: str, name: str) -> Sequence[str]:
    from persys.infra.net.srv import find_service  # imported on use: most clusters list addresses

    return find_service(name, server=server, deadline_seconds=FIND_SECONDS)
