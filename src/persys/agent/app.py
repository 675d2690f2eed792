"""Runs an agent: opens its environment, serves its API and runs its background components."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from random import SystemRandom
from typing import Any

import structlog

from persys.agent.api.service import SERVICE, SERVICE_DESCRIPTOR, build_authorizer
from persys.agent.components import (
    Environment,
    build_api,
    build_node,
    build_registration,
    build_session,
    build_shared,
    build_workloads,
)
from persys.agent.journal.secrets import journal_key_file
from persys.agent.journal.store import Journal, stored_node_id
from persys.agent.metrics import health_of
from persys.agent.node import host
from persys.agent.node.host import boot_id_of_runtimes
from persys.agent.runtimes.detect import Detector, workload_roots
from persys.agent.runtimes.docker.disk_limits import watch_disks
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.settings import AgentSettings
from persys.agent.tls import node_id_of, open_tls, vault_certificate_source
from persys.agent.uplink.heartbeat import PendingReports
from persys.agent.uplink.session import SchedulerSession
from persys.agent.volumes.detect import detect_drivers
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.agent.workloads.crash_recovery import recorded_run
from persys.agent.workloads.runtime_watch import reconcile_periodically
from persys.errors import PersysError
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.aio.supervisor import Loop
from persys.infra.clock import SystemClock, since_boot
from persys.infra.gc_tuning import settle_memory
from persys.infra.process import serve
from persys.infra.rpc.authorized_service import AuthorizedService
from persys.infra.rpc.grpc_server import new_server, start_server
from persys.infra.telemetry.side_server import SideServer
from persys.infra.tls.first_certificate import ensure_certificate
from persys.model.ids import NodeId

log = structlog.get_logger()

STOP_GRACE_SECONDS = 2.0
DETECT_INTERVAL_SECONDS = 30.0
THREADS_MAX = 32
# An unexpected exception in one of these ends the process; other parts are restarted.
ESSENTIAL_PARTS = frozenset({"journal", "requests"})


async def run_agent(settings: AgentSettings, stop: asyncio.Event) -> None:
    clock = SystemClock(monotonic=since_boot)  # leases also expire while the host is suspended
    stored_id = stored_node_id(settings.state_path)
    source = vault_certificate_source(settings, clock, stored_id)
    if source is not None and not await ensure_certificate(
        settings.files, source.identity, source, clock, stop
    ):
        return
    tls = open_tls(settings, clock, source)
    node_id = node_id_of(settings, tls, stored_id)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS_MAX))
    journal = Journal(
        settings.state_path,
        cluster_id=settings.cluster_id,
        node_id=node_id,
        key_file=journal_key_file(settings.state_path, settings.journal_key_file),
    )
    pending_reports, owner = PendingReports(), OwnerLabels(settings.cluster_id, node_id)
    paths = ThreadPathCalls(roots=workload_roots(settings, owner))
    detector = Detector(
        settings, owner, journal, clock, paths, images_changed=pending_reports.add_node
    )
    try:
        registry = VolumeRegistry(journal)
        with recorded_run(journal, settings.state_path, stop) as recovery:
            environment = Environment(
                journal=journal,
                runtimes=detector.found,
                volumes=ManagedVolumes(
                    detect_drivers(settings, registry, Programs(), paths),
                    registry,
                    clock,
                    paths,
                ),
                host=host,
                clock=clock,
                paths=paths,
                connect=None,
                random=SystemRandom(),
                boot_id=boot_id_of_runtimes(settings.docker_host, settings.libvirt_uri),
                pending_reports=pending_reports,
                recovery=recovery,
                detect=detector.detect,
                tls=tls,
            )
            await Agent(settings, node_id, environment).run(stop)
    finally:
        await detector.close()
        journal.close()


class Agent:
    def __init__(self, settings: AgentSettings, node_id: NodeId, environment: Environment) -> None:
        self._settings = settings
        self._node_id = node_id
        self._environment = environment
        self._shared = shared = build_shared(environment)
        self._node = node = build_node(settings, environment, shared)
        self._workloads = build_workloads(settings, environment, shared, node)
        self.api = build_api(settings, node_id, environment, shared, node, self._workloads)
        self.registry = shared.metrics.registry
        self.contact = shared.contact
        self.supervisor = shared.supervisor

    async def run(self, stop: asyncio.Event) -> None:
        settings, environment = self._settings, self._environment
        await self._detect_first()
        server, tls = new_server(), environment.tls
        authorizer = build_authorizer(settings, tls, environment.clock, self._shared.metrics)
        AuthorizedService(self.api, SERVICE_DESCRIPTOR, authorizer, self.supervisor).add_to(server)
        side = SideServer(supervisor=self.supervisor, registry=self.registry, health=self._health)
        await side.start(settings.grpc_addr, settings.metrics_port)
        try:
            port = await start_server(
                server,
                SERVICE,
                host=settings.grpc_addr,
                port=settings.grpc_port,
                certificates=tls.certificates if tls is not None and settings.serves_tls else None,
            )
            await self._node.pools.refresh_first()
            settle_memory()
            log.info("agent.serving", node_id=self._node_id, port=port, version=settings.version)
            await serve(self.parts(port), stop)
        finally:
            await server.stop(STOP_GRACE_SECONDS)
            await side.stop()

    def parts(self, port: int) -> dict[str, Callable[[], Awaitable[None]]]:
        """The background components. `port` is the port of the gRPC server."""
        settings, environment, shared = self._settings, self._environment, self._shared
        node, workloads, written = self._node, self._workloads, shared.metrics.journal.written
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "journal": partial(environment.journal.run, self.supervisor, written),
            "requests": shared.owned.run,
            "worker": workloads.worker.run,
            "probes": workloads.probes.run,
            "utilization": node.host_sampler.run,
            "admission": workloads.admission.run,
            "pools": node.pools.run,
            "usage": node.usage_sampler.run,
            "runtimes": node.watches.run,
        }
        if environment.detect is not None:
            parts["detection"] = partial(self._detect, environment.detect)
        if environment.tls is not None:
            parts["certificates"] = environment.tls.run
        if shared.networks is not None:
            parts["networks"] = shared.networks.run
        if settings.gc_enabled:
            parts["garbage"] = workloads.garbage.run
        parts["reconcile-passes"] = self._reconcile_periodically
        limits, every = environment.runtimes.disk_limits, settings.disk_limit_interval
        if limits is not None and every > timedelta():
            parts["disk-limits"] = partial(
                watch_disks, limits, environment.journal, shared.queue, every, self.supervisor
            )
        if not settings.standalone:
            parts["uplink"] = self._build_session(port).run
            parts["contact"] = shared.contact.run
        return {name: partial(self._supervised, name, part) for name, part in parts.items()}

    async def _supervised(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        await self.supervisor.keep_running(
            Loop(
                name,
                part,
                ends_process=name in ESSENTIAL_PARTS,
                where="part",
                tolerates=(PersysError,),
            )
        )

    def _build_session(self, port: int) -> SchedulerSession:
        settings, environment = self._settings, self._environment
        registration = build_registration(settings, self._node_id, environment, port=port)
        return build_session(
            settings, environment, self._shared, self._node, self.api, registration
        )

    async def _reconcile_periodically(self) -> None:
        settings, shared = self._settings, self._shared
        await reconcile_periodically(
            self._workloads.worker,
            shared.queue,
            settings.reconcile_interval,
            self._environment.clock,
            shared.metrics,
            retries_applies=settings.standalone and settings.reconcile_enabled,
        )

    async def _detect_first(self) -> None:
        """Detect the runtimes at start-up. Raises SettingsError."""
        if self._environment.detect is not None:
            with self.supervisor.contain("part", "detection", failed=lambda _error: None):
                await self._environment.detect()
        if self._shared.networks is not None:
            with self.supervisor.contain("part", "networks", failed=lambda _error: None):
                await self._shared.networks.detect()

    async def _detect(self, detect: Callable[[], Awaitable[bool]]) -> None:
        """Detect runtimes that are installed while the agent runs."""
        while True:
            await asyncio.sleep(DETECT_INTERVAL_SECONDS)
            if await detect():
                log.info("runtimes.detected", types=sorted(self._environment.runtimes.types))
                self._node.watches.refresh()
                self._environment.pending_reports.add_node()

    def _health(self) -> Mapping[str, Any]:
        journal, scheduler = self._environment.journal, "standalone"
        if not self._settings.standalone:
            scheduler = self._shared.contact.connected_to or "not connected"
        return health_of(
            self._node_id,
            self._settings.version,
            responding=self._node.watches.responding(),
            runtime_problem=self._node.watches.problem(),
            journal_problem=journal.problem(),
            scheduler=scheduler,
            leader_silent_for=self._shared.contact.silent_for(),
            workload_count=len(journal.entries),
            tls=self._environment.tls,
        )
