"""Runs the gRPC server and, behind it, scheduler replicas: standby first, leader when elected.

On its own store a replica leads at once; on a shared store it follows until there is no leader. When
leadership is lost, the replica is discarded with its memory, and a new one starts as standby.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from persys.core.auth.denials import Denial
from persys.core.services.answers import Answer, Outcome
from persys.errors import (
    ConflictError,
    FencedError,
    PersysError,
    StoreUnavailableError,
    UnavailableError,
)
from persys.infra.aio.supervisor import Loop, Supervisor
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock, SystemClock
from persys.infra.gc_tuning import settle_memory, tune_garbage_collector
from persys.infra.rpc.authorized_service import AuthorizedService
from persys.infra.rpc.grpc_server import new_server, start_server
from persys.infra.telemetry.side_server import SideServer
from persys.infra.tls.first_certificate import ensure_certificate
from persys.infra.tls.identity import Claims
from persys.infra.tls.metrics import register_certificate_metrics
from persys.infra.tls.tls import Tls
from persys.infra.vault.session import VaultKv, open_vault
from persys.model.identity import Token
from persys.providers.open import open_provider
from persys.scheduler.api.methods import SERVICE, SERVICE_DESCRIPTOR
from persys.scheduler.app import Scheduler
from persys.scheduler.auth.authorization import build_authorizer
from persys.scheduler.auth.tls import (
    agent_connector,
    ca_revocation,
    leader_connector,
    machine_tokens,
    open_tls,
    vault_certificates,
)
from persys.scheduler.build import MachineSources
from persys.scheduler.commit.store_guard import StoreGuard
from persys.scheduler.discovery import endpoints as discovery_endpoints
from persys.scheduler.ha.forwarding import LeaderRouter
from persys.scheduler.ha.standby import Standby
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.settings import ETCD, SchedulerSettings
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.open import open_store, refuse_second_cluster
from persys.store.port import Store

log = structlog.get_logger()

STOP_GRACE_SECONDS = 2.0
RESIGN_SECONDS = 2.0
PAUSE_SECONDS = 0.2


class SchedulerServer:
    def __init__(
        self,
        settings: SchedulerSettings,
        store: Store,
        clock: Clock,
        *,
        tls: Tls | None,
        router: LeaderRouter,
        names: EtcdOptions | None = None,
        dns: tuple[str, int] | None = None,
        shared: bool = False,
        new_replica: Callable[..., Scheduler] = Scheduler,
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """`names` is the etcd that CoreDNS reads; `dns` is where this process serves DNS.
        A simulation passes its own `router` and `new_replica`.

        `loaded` is called when this process becomes the leader: all records are in memory then.

        With `tls` None (-insecure) every caller is served; otherwise `new_replica` and `router` need it too.
        """
        self._settings = settings
        self._clock = clock
        self._names = names
        self._dns = dns
        self._shared = shared
        self._metrics = Metrics()
        self.supervisor = Supervisor("scheduler", clock, self._metrics.registry)
        self._store = StoreGuard(store, self.supervisor)
        self._router = router
        self._make_replica = new_replica
        self._loaded = loaded
        self._tls = tls
        if tls is not None:
            register_certificate_metrics(self._metrics.registry, "scheduler", tls)
        self._replica: Scheduler | None = None
        self._standby: Standby | None = None
        self._is_stopping = False
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. The first part that fails ends all."""
        server = new_server()
        authorizer = build_authorizer(
            self._tls,
            self._clock,
            denied=self._note_denial,
            tokens=self._find_token,
            check=self._check,
            gateway_role=self._settings.gateway_role,
        )
        AuthorizedService(self._router, SERVICE_DESCRIPTOR, authorizer, self.supervisor).add_to(
            server
        )
        side = SideServer(
            supervisor=self.supervisor,
            registry=self._metrics.registry,
            health=self._health,
            count=self._count,
            unhealthy_code=200,
        )
        settings = self._settings
        try:
            async with asyncio.TaskGroup() as group:
                replicas = group.create_task(self.run_replicas())
                renewing = group.create_task(self._renew())
                answering = group.create_task(self._serve_dns())
                await self._router.until_serving()  # no port is opened before calls can be served
                await side.start(settings.grpc_addr, settings.metrics_port)
                port = await start_server(
                    server,
                    SERVICE,
                    host=settings.grpc_addr,
                    port=settings.grpc_port,
                    certificates=self._tls.certificates if self._tls is not None else None,
                )
                log.info("scheduler.serving", port=port, workloads=self._workload_count())
                await stop.wait()
                log.info("scheduler.stopping")
                if self._replica is not None:
                    self._replica.end_streams()
                await server.stop(STOP_GRACE_SECONDS)
                self._is_stopping = True
                replicas.cancel()
                renewing.cancel()
                answering.cancel()
        finally:
            await server.stop(0)
            await side.stop()
            await self._router.close()
            await self._store.close()

    def _check(self, claims: Claims) -> None:
        """Raises DeniedError for a certificate of a removed node, or one revoked by its serial."""
        # The certificate of a removed node is revoked shortly after; the removal is the better reason.
        if self._replica is not None:
            self._replica.removed.check(claims)
        if self._tls is not None:
            self._tls.check(claims)

    def _note_denial(self, denial: Denial) -> None:
        self._metrics.denied(denial.role, denial.method)
        if self._replica is not None and self._router.leads:
            self._replica.denials.note(denial)

    def _find_token(self, token_id: str) -> Token | None:
        """Raises UnavailableError before the records are loaded."""
        if self._replica is None or not self._replica.loader.has_loaded:
            raise UnavailableError("this scheduler has not loaded the tokens yet; try again")
        return self._replica.cluster.tokens.get(token_id)

    async def run_replicas(self) -> None:
        """Run one replica after the other, until cancelled."""
        while True:
            async with self._new_replica() as replica:
                try:
                    await self._start_leading(replica)
                    await replica.lead(partial(self._open, replica))
                except* (FencedError, ConflictError) as lost:
                    if not self._shared and not self._is_stopping:
                        raise
                    if not self._is_stopping:
                        log.warning("leadership.lost", reason=str(lost.exceptions[0]))
            if self._is_stopping:
                # A write in progress failed, and its error replaced the cancellation.
                raise asyncio.CancelledError
            await asyncio.sleep(PAUSE_SECONDS)

    async def _renew(self) -> None:
        if self._tls is not None:
            await self.supervisor.keep_running(Loop("certificate", self._tls.run))

    async def _serve_dns(self) -> None:
        if self._dns is None:
            return
        from persys.infra.net.dns_server import DnsServer  # only schedulers without CoreDNS need it

        server = DnsServer(
            *self._dns,
            self._resolve,
            self._clock,
            supervisor=self.supervisor,
            count=self._metrics.dns_answered,
        )
        await self.supervisor.keep_running(Loop("dns", server.run))

    def _resolve(self, name: str) -> Answer:
        """Before the records are loaded no name is known: clients ask again."""
        if self._replica is None or not self._replica.loader.has_loaded:
            return Answer(Outcome.REFUSED)
        return self._replica.names.resolve(name)

    def _open(self, replica: Scheduler) -> None:
        self._standby = None
        self._loaded()
        self._router.lead(replica.api(), revision=lambda: replica.store_watch.revision)
        log.info("leadership.taken", leader=self.name)

    async def _start_leading(self, replica: Scheduler) -> None:
        """Lead at once, or after standby. If another replica was faster, stand by again with this memory."""
        if not self._shared:
            await replica.take_over()
            return
        standby = self._standby = replica.standby(self._router.leader_changed)
        self._router.stand_by(replica.api(), standby)
        while True:
            try:
                if await standby.until_leading():
                    await replica.resume_as_leader()
                else:
                    await replica.take_over()
            except (FencedError, ConflictError, StoreUnavailableError) as err:
                log.info("leadership.missed", reason=str(err))
                await self._resign(replica)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return

    async def _resign(self, replica: Scheduler) -> None:
        with suppress(PersysError, TimeoutError):
            async with asyncio.timeout(RESIGN_SECONDS):
                await replica.leader_key.resign()

    @asynccontextmanager
    async def _new_replica(self) -> AsyncIterator[Scheduler]:
        replica = self._replica = self._make_replica(
            self._settings,
            self._store,
            self._clock,
            name=self.name,
            names=EtcdStore(self._names) if self._names is not None else None,
            metrics=self._metrics,
            supervisor=self.supervisor,
            shared=self._shared,
        )
        try:
            async with asyncio.TaskGroup() as group:
                announcing = group.create_task(replica.announce())
                yield replica
                announcing.cancel()
        finally:
            self._router.stop_serving()
            await self._resign(replica)
            await replica.close()

    def _workload_count(self) -> int:
        return len(self._replica.cluster.workloads) if self._replica is not None else 0

    async def _count(self) -> None:
        if self._replica is not None:
            await self._replica.workload_counter.take()

    def _health(self) -> dict[str, Any]:
        assert self._replica is not None
        health = self._replica.health()
        if self._tls is not None:
            health["certificate"] = self._tls.health()
        if self._standby is None:
            return {**health, "role": "leader"}
        leader = self._standby.leader
        return {
            **health,
            "role": "standby",
            "leader": leader.name if leader is not None else "",
            "leaderEndpoint": leader.endpoint if leader is not None else "",
            "dataAgeMs": round(self._standby.data_age() * 1000),
        }


async def serve(settings: SchedulerSettings, stop: asyncio.Event) -> None:
    clock = SystemClock()
    vault = open_vault(settings, clock)
    source = vault_certificates(settings, vault)
    if source is not None and not await ensure_certificate(
        settings.files, source.identity, source, clock, stop
    ):
        return
    tls = open_tls(settings, clock, source)
    etcd = _etcd_options(settings)
    store = await open_store(settings.store, etcd=etcd, monotonic=clock.monotonic)
    if settings.store == ETCD:
        await refuse_second_cluster(store)
    names = _names(etcd, discovery_endpoints.dns_etcd_endpoints(settings))
    shared = settings.store == ETCD
    scheduler_server = SchedulerServer(
        settings,
        store,
        clock,
        names=names,
        dns=discovery_endpoints.dns_listen_of(settings) if names is None else None,
        shared=shared,
        tls=tls,
        router=LeaderRouter(leader_connector(tls)),
        new_replica=partial(
            Scheduler,
            connect=agent_connector(tls),
            connect_by_host=agent_connector(tls, by_host=True),
            watches_certificates=tls is not None,
            vault=VaultKv(vault) if vault is not None else None,
            revoke=ca_revocation(settings),
            machines=MachineSources(
                partial(open_provider, programs=settings.provider_programs),
                machine_tokens(settings),
            ),
        ),
        # Records are long-lived: a garbage collection that visits all of them pauses the process, with
        # 20,000 workloads for most of a second.
        loaded=settle_memory,
    )
    async with task_group() as group:
        background = [
            group.create_task(
                scheduler_server.supervisor.keep_running(Loop("garbage", tune_garbage_collector))
            )
        ]
        if vault is not None and tls is None:  # else the login is renewed with the certificate
            background.append(
                group.create_task(
                    scheduler_server.supervisor.keep_running(Loop("vault", vault.run))
                )
            )
        await scheduler_server.run(stop)
        for task in background:
            task.cancel()


def _etcd_options(settings: SchedulerSettings) -> EtcdOptions:
    return EtcdOptions(
        endpoints=settings.etcd_endpoints,
        ca=_path(settings.etcd_ca),
        cert=_path(settings.etcd_cert),
        key=_path(settings.etcd_key),
        user=settings.etcd_user,
        password=settings.etcd_password,
    )


def _names(etcd: EtcdOptions, endpoints: tuple[str, ...]) -> EtcdOptions | None:
    if endpoints:
        return replace(etcd, endpoints=endpoints)
    log.warning(
        "discovery.off", reason="the store is not etcd, and no etcd of CoreDNS is configured"
    )
    return None


def _path(text: str) -> Path | None:
    return Path(text) if text else None
