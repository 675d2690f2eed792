"""Wires the components of the agent and runs them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random, SystemRandom
from typing import Any

import structlog

from persys.agent.access.console import ConsoleService
from persys.agent.access.logs import PreviousLogs
from persys.agent.access.sessions import Sessions
from persys.agent.api.images import ImageApi
from persys.agent.api.service import SERVICE, SERVICE_DESCRIPTOR, AgentApi, build_authorizer
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.enrolment.tls import by_vault, node_of, open_tls
from persys.agent.garbage_collection import GarbageCollector
from persys.agent.images.store import ImageStore
from persys.agent.journal.recorder import Recorder
from persys.agent.journal.secrets import journal_key_file
from persys.agent.journal.store import Journal, stored_node_id
from persys.agent.metrics import Metrics, export_workloads, health_of
from persys.agent.node import host
from persys.agent.node.capabilities import StoragePools, capabilities_of
from persys.agent.node.host import boot_id_of_runtimes
from persys.agent.node.usage import UtilizationSampler, WorkloadUsageSampler
from persys.agent.ports import Host, Volumes
from persys.agent.runtimes.detect import Detector, NodeRuntimes, workload_roots
from persys.agent.runtimes.docker.disk_limits import watch_disks
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.settings import AgentSettings
from persys.agent.uplink.contact import SchedulerContact, always_established, never_lost
from persys.agent.uplink.heartbeat import PendingReports, Refusals, ReportBuilder
from persys.agent.uplink.link import CALL_DEADLINE_SECONDS, Connect
from persys.agent.uplink.session import NodeRegistration, SchedulerSession
from persys.agent.uplink.stream_link import over_stream
from persys.agent.volumes.detect import detect_drivers
from persys.agent.volumes.inventory import Inventory
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.agent.workloads.admission import Admission, AdmissionLimits
from persys.agent.workloads.crash_recovery import Recovery, recorded_run
from persys.agent.workloads.health_probes import HealthProbes
from persys.agent.workloads.node_policy import policy_of
from persys.agent.workloads.orders import OrderService
from persys.agent.workloads.runtime_watch import RuntimeWatches, reconcile_periodically
from persys.agent.workloads.steps import PullTracker, StepDeadlines, Steps
from persys.agent.workloads.work_queue import WorkQueue
from persys.agent.workloads.worker import Worker
from persys.core.agent.admission import Load
from persys.core.agent.garbage import Ages
from persys.core.agent.health import HEALTH
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.path_calls import PathCalls, ThreadPathCalls
from persys.infra.aio.supervisor import OnError, Supervisor, supervised_parts
from persys.infra.clock import Clock, SystemClock, since_boot
from persys.infra.process import serve
from persys.infra.rpc.authorized_service import AuthorizedService
from persys.infra.rpc.grpc_server import new_server, start_server
from persys.infra.telemetry.side_server import SideServer
from persys.infra.tls.first_certificate import ensure_certificate
from persys.infra.tls.metrics import register_certificate_metrics
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities
from persys.model.spec import WorkloadType

log = structlog.get_logger()

STOP_GRACE_SECONDS = 2.0
DETECT_INTERVAL_SECONDS = 30.0
REQUESTS_MAX = 1024
THREADS_MAX = 32
# What an unexpected exception does per component. The agent cannot work without journal and requests.
PARTS = {
    **dict.fromkeys(("journal", "requests"), OnError.EXIT),
    **dict.fromkeys(("worker", "probes", "collector", "admission", "pools"), OnError.RESTART),
    **dict.fromkeys(("usage", "runtimes", "detection", "certificates"), OnError.RESTART),
    **dict.fromkeys(("garbage", "look-at-all", "disk-limits"), OnError.RESTART),
    **dict.fromkeys(("uplink", "contact"), OnError.RESTART),
}
_WILDCARDS = ("", "0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the process that the agent uses. The simulation provides its own."""

    journal: Journal
    runtimes: NodeRuntimes
    volumes: Volumes
    host: Host
    clock: Clock
    paths: PathCalls
    connect: Connect | None  # None: control stream if the scheduler supports it, else unary calls
    random: Random
    boot_id: str  # of the kernel that runs the runtimes; "": unknown
    pending_reports: PendingReports = field(default_factory=PendingReports)
    deadlines: StepDeadlines = field(default_factory=StepDeadlines)
    recovery: Recovery = field(default_factory=Recovery)  # of the previous run
    detect: Callable[[], Awaitable[bool]] | None = None  # returns whether a runtime was added
    tls: Tls | None = None


async def run_agent(settings: AgentSettings, stop: asyncio.Event) -> None:
    clock = SystemClock(monotonic=since_boot)  # leases also expire while the host is suspended
    kept = stored_node_id(settings.state_path)
    source = by_vault(settings, clock, kept)
    if source is not None and not await ensure_certificate(
        settings.files, source.identity, source, clock, stop
    ):
        return
    tls = open_tls(settings, clock, source)
    node_id = node_of(settings, tls, kept)
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
                detect=detector.look,
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
        self._journal = journal = environment.journal
        self._clock = clock = environment.clock
        self._runtimes = environment.runtimes
        self._metrics = Metrics()
        self.registry = self._metrics.registry
        if environment.tls is not None:
            register_certificate_metrics(self._metrics.registry, "agent", environment.tls)
        self.supervisor = Supervisor("agent", clock, self._metrics.registry)
        self._owned = OwnedWork(self.supervisor, limit=REQUESTS_MAX)
        self._queue = WorkQueue(journal)
        self._refusals = Refusals(clock)
        self._locks: KeyedLock[WorkloadId] = KeyedLock()
        self._recorder = Recorder(
            journal,
            clock,
            self._metrics,
            report=environment.pending_reports.add,
            random=environment.random,
        )
        self._previous_logs = self._build_past()
        self._steps = Steps(
            self._runtimes.types,
            environment.volumes,
            PullTracker(journal, self._recorder, clock, self._metrics),
            self._previous_logs,
            environment.deadlines,
        )
        self._contact = SchedulerContact(journal, clock, wake=self._queue.wake)
        self._probes = HealthProbes(clock, self._metrics, self.supervisor, wake=self._queue.wake)
        self._worker = self._build_worker()
        self._usage_sampler = WorkloadUsageSampler(
            self._runtimes.samplers, journal, clock, self.supervisor
        )
        export_workloads(
            self._metrics.registry,
            actual=self._count_workloads,
            health=self._count_health,
            usage=lambda: self._usage_sampler.usage,
        )
        volumes, paths = settings.storage_local_root, environment.paths
        self._host_sampler = UtilizationSampler(journal, volumes, paths, environment.host)
        self._pools = StoragePools(environment.host, volumes, paths, lambda: self._runtimes.pools)
        self._admission = Admission(
            self._bounds(), journal, self._host_sampler, self._metrics, is_here=self._steps.may_have
        )
        self._garbage = self._build_garbage()
        self._intake = self._build_intake()
        self._watches = RuntimeWatches(
            self._runtimes.types,
            self._queue,
            self._metrics,
            self.supervisor,
            changed=environment.pending_reports.add_node,
        )
        self._image_doors: dict[ImageStore, ImageApi] = {}
        self._uplink: SchedulerSession | None = None

    async def run(self, stop: asyncio.Event) -> None:
        settings, tls = self._settings, self._environment.tls
        await self._detect_first()
        server = new_server()
        door = build_authorizer(settings, tls, self._clock, self._metrics)
        AuthorizedService(self.api(), SERVICE_DESCRIPTOR, door, self.supervisor).add_to(server)
        side = SideServer(registry=self._metrics.registry, health=self._health)
        await side.start(settings.grpc_addr, settings.metrics_port)
        try:
            port = await start_server(
                server,
                SERVICE,
                host=settings.grpc_addr,
                port=settings.grpc_port,
                certificates=tls.certificates if tls is not None and settings.serves_tls else None,
            )
            await self._pools.refresh_first()
            log.info("agent.serving", node_id=self._node_id, port=port, version=settings.version)
            await serve(self.parts(port), stop)
        finally:
            await server.stop(STOP_GRACE_SECONDS)
            await side.stop()

    def api(self) -> AgentApi:
        environment = self._environment
        return AgentApi(
            self._node_id,
            self._settings.version,
            journal=self._journal,
            intake=self._intake,
            host_sampler=self._host_sampler,
            runtimes=self._runtimes.types,
            clock=self._clock,
            garbage=self._garbage,
            access=Sessions(
                self._journal,
                self._runtimes.docker,
                self._previous_logs,
                self._consoles,
                exec_enabled=self._settings.exec_enabled,
            ),
            usage_sampler=self._usage_sampler,
            inventory=Inventory(
                environment.volumes,
                lambda: self._runtimes.disks,
                self._journal,
                self._locks,
                self._owned,
            ),
            images=self._image_door,
            supervisor=self.supervisor,
            owned=self._owned,
            calls=self._metrics.calls,
            refusals=self._refusals,
        )

    def parts(self, port: int) -> dict[str, Callable[[], Awaitable[None]]]:
        """The background components. `port` is the port of the gRPC server."""
        settings = self._settings
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "journal": partial(self._journal.run, self.supervisor, self._metrics.journal.written),
            "requests": self._owned.run,
            "worker": self._worker.run,
            "probes": self._probes.run,
            "collector": self._host_sampler.run,
            "admission": self._admission.run,
            "pools": self._pools.run,
            "usage": self._usage_sampler.run,
            "runtimes": self._watches.run,
        }
        if self._environment.detect is not None:
            parts["detection"] = partial(self._detect, self._environment.detect)
        if self._environment.tls is not None:
            parts["certificates"] = self._environment.tls.run
        if settings.gc_enabled:
            parts["garbage"] = self._garbage.run
        parts["look-at-all"] = partial(
            reconcile_periodically,
            self._worker,
            self._queue,
            settings.reconcile_interval,
            self._clock,
            self._metrics,
            retries_applies=settings.standalone and settings.reconcile_enabled,
        )
        limits, every = self._runtimes.disk_limits, settings.disk_limit_interval
        if limits is not None and every > timedelta():
            parts["disk-limits"] = partial(
                watch_disks, limits, self._journal, self._queue, every, self.supervisor
            )
        if not settings.standalone:
            self._uplink = self._new_uplink(port)
            parts["uplink"] = self._uplink.run
            parts["contact"] = self._contact.run
        return supervised_parts(parts, PARTS.__getitem__, self.supervisor, self._clock)

    def _build_past(self) -> PreviousLogs | None:
        docker = self._runtimes.docker
        if docker is None:
            return None
        root = self._settings.state_path.absolute().parent / "past"
        return PreviousLogs(root, docker, self._environment.paths)

    def _build_worker(self) -> Worker:
        return Worker(
            self._journal,
            self._locks,
            self._steps,
            self._probes,
            self._recorder,
            self._clock,
            queue=self._queue,
            must_stop=never_lost if self._settings.standalone else self._contact.must_stop,
            supervisor=self.supervisor,
            recovery=self._environment.recovery,
            reconciles=self._settings.reconcile_enabled,
        )

    def _build_garbage(self) -> GarbageCollector:
        settings = self._settings
        return GarbageCollector(
            self._journal,
            self._locks,
            self._clock,
            self._metrics,
            found=self._runtimes.garbage_sources(),
            ages=Ages(
                zombie=settings.gc_zombie_after,
                stray=settings.gc_stray_after,
                image=settings.gc_image_after,
                action=settings.gc_action_after,
            ),
            interval=settings.gc_interval,
            dry_run=settings.gc_dry_run,
            in_touch=self._contact.unbroken_for,
            supervisor=self.supervisor,
            owned=self._owned,
        )

    def _build_intake(self) -> OrderService:
        standalone = self._settings.standalone
        return OrderService(
            self._journal,
            self._locks,
            self._worker,
            self._recorder,
            self._clock,
            policy=policy_of(self._settings),
            volumes=self._environment.volumes,
            admission=self._admission,
            types=self._runtimes.types.keys(),
            report=self._environment.pending_reports.add,
            is_draining=self._contact.is_draining,
            is_established_for=always_established
            if standalone
            else self._contact.is_established_for,
            owned=self._owned,
        )

    def _consoles(self) -> ConsoleService | None:
        machines = self._runtimes.machines
        return (
            ConsoleService(self._journal, machines, self._clock) if machines is not None else None
        )

    def _image_door(self) -> ImageApi | None:
        images = self._runtimes.images
        return (
            self._image_doors.setdefault(images, ImageApi(images, self._owned)) if images else None
        )

    async def _detect_first(self) -> None:
        """Detect the runtimes at start-up. Raises SettingsError."""
        if self._environment.detect is not None:
            with self.supervisor.contain("part", "detection", failed=lambda _error: None):
                await self._environment.detect()

    async def _detect(self, look: Callable[[], Awaitable[bool]]) -> None:
        """Detect runtimes that are installed while the agent runs."""
        while True:
            await asyncio.sleep(DETECT_INTERVAL_SECONDS)
            if await look():
                log.info("runtimes.detected", types=sorted(self._runtimes.types))
                self._watches.refresh()
                self._environment.pending_reports.add_node()

    def _new_uplink(self, port: int) -> SchedulerSession:
        settings = self._settings
        labels = dict(settings.node_labels)
        labels |= {"region": settings.node_region} if settings.node_region else {}
        labels |= {"env": settings.node_env} if settings.node_env else {}
        endpoint = settings.agent_grpc_endpoint
        if not endpoint and settings.grpc_addr not in _WILDCARDS:
            endpoint = f"{settings.grpc_addr}:{port}"
        return SchedulerSession(
            NodeRegistration(
                self._node_id,
                settings.cluster_id,
                settings.version,
                labels=labels,
                endpoint=endpoint,
                port=port,
                boot_id=self._environment.boot_id,
            ),
            settings.scheduler_addr,
            self._capabilities,
            connect=self._environment.connect or self._connect(),
            random=self._environment.random,
            journal=self._journal,
            pending_reports=self._environment.pending_reports,
            clock=self._clock,
            metrics=self._metrics,
            contact=self._contact,
            reports=ReportBuilder(
                self._node_id,
                self._journal,
                self._host_sampler,
                self._usage_sampler,
                self._clock,
                self.supervisor,
                unavailable=self._unavailable,
                policy=self._intake.policy,
            ),
            find_service=self._find_service,
        )

    def _connect(self) -> Connect:
        calls, tls = TunnelServer(self.api(), self.supervisor), self._environment.tls
        if tls is None or not self._settings.calls_with_tls:
            return over_stream(calls)
        return over_stream(calls, tls.dial(Role.SCHEDULER), certificate=tls.in_use)

    def _find_service(self, name: str) -> list[str]:
        from persys.infra.net.srv import find_service  # imported only for SRV names

        server = self._settings.dns_server
        return find_service(name, server=server, deadline_seconds=CALL_DEADLINE_SECONDS)

    def _capabilities(self) -> Capabilities:
        environment = self._environment
        return capabilities_of(
            self._settings,
            self._runtimes,
            environment.host,
            environment.volumes,
            self._pools.current(),
        )

    def _bounds(self) -> AdmissionLimits:
        settings = self._settings
        return AdmissionLimits(
            Load(
                settings.admission_cpu_percent,
                settings.admission_memory_percent,
                settings.admission_disk_percent,
            ),
            settings.admission_half_life,
            self._capabilities().allocatable,
        )

    def _count_workloads(self) -> Mapping[str, int]:
        return Counter(entry.status.actual.value for entry in self._journal.entries.values())

    def _count_health(self) -> Mapping[str, int]:
        standings = (entry.status.metadata for entry in self._journal.entries.values())
        return Counter(words[HEALTH] for words in standings if HEALTH in words)

    def _unavailable(self) -> list[WorkloadType]:
        """Workload types that this node cannot run now. Without a journal it accepts no orders."""
        if self._journal.problem():
            return sorted(self._runtimes.types)
        return self._watches.unavailable()

    def _health(self) -> Mapping[str, Any]:
        scheduler = "standalone"
        if self._uplink is not None:
            scheduler = self._uplink.connected_to or "not connected"
        return health_of(
            self._node_id,
            self._settings.version,
            answering=self._watches.answering(),
            journal_problem=self._journal.problem(),
            scheduler=scheduler,
            workload_count=len(self._journal.entries),
            tls=self._environment.tls,
        )
