"""Builds the components of an agent: one function per group, wired through constructors.

`build_shared` builds the services that most components use; the node components observe the host and its
runtimes; the workload components accept orders and carry them out. `app.py` runs them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from persys.agent.access.console import ConsoleService
from persys.agent.access.logs import PreviousLogs
from persys.agent.access.sessions import Sessions, SessionService
from persys.agent.api.images import ImageApi
from persys.agent.api.service import AgentApi
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.garbage_collection import GarbageCollector
from persys.agent.images.store import ImageStore
from persys.agent.journal.recorder import Recorder
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics, export_workloads
from persys.agent.networks.controller import NetworkController
from persys.agent.networks.resolver import NetworkResolver
from persys.agent.node.capabilities import NodeCapabilities, StoragePools, capabilities_of
from persys.agent.node.usage import UtilizationSampler, WorkloadUsageSampler
from persys.agent.ports import Host, Volumes
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.settings import AgentSettings
from persys.agent.uplink.contact import SchedulerContact, always_established, never_lost
from persys.agent.uplink.heartbeat import PendingReports, Refusals, ReportBuilder
from persys.agent.uplink.link import CALL_DEADLINE_SECONDS, Connect
from persys.agent.uplink.session import NodeRegistration, SchedulerSession
from persys.agent.uplink.stream_link import connect_stream
from persys.agent.volumes.inventory import Inventory
from persys.agent.workloads.admission import Admission, AdmissionLimits, Refusal
from persys.agent.workloads.crash_recovery import Recovery
from persys.agent.workloads.health_probes import HealthProbes
from persys.agent.workloads.node_policy import policy_of
from persys.agent.workloads.orders import OrderService
from persys.agent.workloads.runtime_watch import RuntimeWatches
from persys.agent.workloads.steps import PullTracker, StepDeadlines, Steps
from persys.agent.workloads.work_queue import WorkQueue
from persys.agent.workloads.worker import Worker
from persys.core.agent.admission import Load
from persys.core.agent.garbage import Ages
from persys.core.agent.health import HEALTH
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.path_calls import PathCalls
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.grpc_server import new_channel
from persys.infra.tls.metrics import register_certificate_metrics
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities
from persys.model.spec import WorkloadType

REQUESTS_MAX = 1024
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
    sessions: SessionService | None = None  # None: of the runtimes of this node
    # What the node registers, from the capabilities of the host and the runtimes.
    registered: Callable[[Capabilities], Capabilities] = lambda found: found
    labels: Mapping[str, str] = field(default_factory=dict)  # besides those of the settings
    refusal: Refusal | None = None  # another reason to refuse a new workload
    stop_after_parts: int = 1  # into which `stop_after` is divided; this node uses one of them


@dataclass(frozen=True, slots=True)
class Shared:
    """Services that most components use."""

    metrics: Metrics
    supervisor: Supervisor
    owned: OwnedWork
    locks: KeyedLock[WorkloadId]
    queue: WorkQueue
    contact: SchedulerContact
    recorder: Recorder
    networks: NetworkController | None  # None: not possible on this node


@dataclass(frozen=True, slots=True)
class NodeComponents:
    """Components that observe the host and its runtimes."""

    watches: RuntimeWatches
    host_sampler: UtilizationSampler
    usage_sampler: WorkloadUsageSampler
    pools: StoragePools
    capabilities: NodeCapabilities
    unavailable: Callable[[], list[WorkloadType]]


@dataclass(frozen=True, slots=True)
class WorkloadComponents:
    """Components that accept orders and carry them out."""

    previous_logs: PreviousLogs | None
    probes: HealthProbes
    worker: Worker
    admission: Admission
    orders: OrderService
    garbage: GarbageCollector


def build_shared(environment: Environment) -> Shared:
    journal, clock = environment.journal, environment.clock
    metrics = Metrics()
    if environment.tls is not None:
        register_certificate_metrics(metrics.registry, "agent", environment.tls)
    supervisor = Supervisor("agent", clock, metrics.registry)
    queue = WorkQueue(journal)
    return Shared(
        metrics,
        supervisor,
        OwnedWork(supervisor, limit=REQUESTS_MAX),
        KeyedLock(),
        queue,
        SchedulerContact(
            journal, clock, wake=queue.wake, stop_after_parts=environment.stop_after_parts
        ),
        Recorder(
            journal,
            clock,
            metrics,
            report=environment.pending_reports.add,
            random=environment.random,
        ),
        build_networks(environment, supervisor, queue, metrics),
    )


def build_networks(
    environment: Environment, supervisor: Supervisor, queue: WorkQueue, metrics: Metrics
) -> NetworkController | None:
    parts, journal = environment.runtimes.networks, environment.journal
    if parts is None:
        return None

    def changed() -> None:
        """Members wait for their networks, and placement uses the routes of the node."""
        for workload_id, entry in journal.entries.items():
            if entry.order.networks:
                queue.wake(workload_id)
        environment.pending_reports.add_node()

    return NetworkController(
        parts.mark,
        journal,
        parts.members,
        parts.host,
        parts.docker,
        NetworkResolver(
            journal,
            parts.members,
            environment.clock,
            environment.paths,
            supervisor=supervisor,
            count=metrics.dns_queries,
        ),
        supervisor=supervisor,
        changed=changed,
    )


def build_node(settings: AgentSettings, environment: Environment, shared: Shared) -> NodeComponents:
    journal, runtimes = environment.journal, environment.runtimes
    root, paths = settings.storage_local_root, environment.paths
    usage_sampler = WorkloadUsageSampler(
        runtimes.samplers, journal, environment.clock, shared.supervisor
    )
    pools = StoragePools(environment.host, root, paths, lambda: runtimes.pools)
    watches = RuntimeWatches(
        runtimes.types,
        shared.queue,
        shared.metrics,
        shared.supervisor,
        changed=environment.pending_reports.add_node,
    )
    export_workloads(
        shared.metrics.registry,
        actual=lambda: Counter(entry.status.actual.value for entry in journal.entries.values()),
        health=lambda: _count_health(journal),
        usage=lambda: usage_sampler.usage,
    )

    def collect() -> Capabilities:
        found = capabilities_of(
            settings,
            runtimes,
            environment.host,
            environment.volumes,
            pools.current(),
            networks=shared.networks,
        )
        return environment.registered(found)

    def unavailable() -> list[WorkloadType]:
        """Workload types that this node cannot run now. Without a journal it accepts no orders."""
        return sorted(runtimes.types) if journal.problem() else watches.unavailable()

    return NodeComponents(
        watches,
        UtilizationSampler(journal, root, paths, environment.host),
        usage_sampler,
        pools,
        NodeCapabilities(collect),
        unavailable,
    )


def build_workloads(
    settings: AgentSettings, environment: Environment, shared: Shared, node: NodeComponents
) -> WorkloadComponents:
    journal, clock, metrics = environment.journal, environment.clock, shared.metrics
    previous_logs = build_previous_logs(settings, environment)
    steps = Steps(
        environment.runtimes.types,
        environment.volumes,
        PullTracker(journal, shared.recorder, clock, metrics),
        previous_logs,
        environment.deadlines,
    )
    probes = HealthProbes(
        clock,
        metrics,
        shared.supervisor,
        wake=shared.queue.wake,
        guests=lambda: environment.runtimes.guests,
    )
    worker = Worker(
        journal,
        shared.locks,
        steps,
        probes,
        shared.recorder,
        clock,
        queue=shared.queue,
        must_stop=never_lost if settings.standalone else shared.contact.must_stop,
        supervisor=shared.supervisor,
        recovery=environment.recovery,
        reconciles=settings.reconcile_enabled,
        networks=shared.networks,
    )
    admission = Admission(
        build_limits(settings, node),
        journal,
        node.host_sampler,
        metrics,
        is_here=steps.may_have,
        other=environment.refusal,
    )
    return WorkloadComponents(
        previous_logs,
        probes,
        worker,
        admission,
        build_orders(settings, environment, shared, worker, admission),
        build_garbage_collector(settings, environment, shared),
    )


def build_previous_logs(settings: AgentSettings, environment: Environment) -> PreviousLogs | None:
    docker = environment.runtimes.docker
    if docker is None:
        return None
    return PreviousLogs(settings.state_path.absolute().parent / "past", docker, environment.paths)


def build_limits(settings: AgentSettings, node: NodeComponents) -> AdmissionLimits:
    most = Load(
        settings.admission_cpu_percent,
        settings.admission_memory_percent,
        settings.admission_disk_percent,
    )
    return AdmissionLimits(most, settings.admission_half_life, node.capabilities.allocatable)


def build_orders(
    settings: AgentSettings,
    environment: Environment,
    shared: Shared,
    worker: Worker,
    admission: Admission,
) -> OrderService:
    contact = shared.contact
    return OrderService(
        environment.journal,
        shared.locks,
        worker,
        shared.recorder,
        environment.clock,
        policy=policy_of(settings),
        volumes=environment.volumes,
        admission=admission,
        types=environment.runtimes.types.keys(),
        report=environment.pending_reports.add,
        is_draining=contact.is_draining,
        is_established_for=(
            always_established if settings.standalone else contact.is_established_for
        ),
        owned=shared.owned,
        networks=shared.networks,
    )


def build_garbage_collector(
    settings: AgentSettings, environment: Environment, shared: Shared
) -> GarbageCollector:
    return GarbageCollector(
        environment.journal,
        shared.locks,
        environment.clock,
        shared.metrics,
        source=environment.runtimes.garbage_sources(),
        ages=Ages(
            zombie=settings.gc_zombie_after,
            stray=settings.gc_stray_after,
            image=settings.gc_image_after,
            action=settings.gc_action_after,
        ),
        interval=settings.gc_interval,
        dry_run=settings.gc_dry_run,
        connected_for=shared.contact.unbroken_for,
        supervisor=shared.supervisor,
        owned=shared.owned,
    )


def build_api(
    settings: AgentSettings,
    node_id: NodeId,
    environment: Environment,
    shared: Shared,
    node: NodeComponents,
    workloads: WorkloadComponents,
) -> AgentApi:
    journal, clock, runtimes = environment.journal, environment.clock, environment.runtimes
    return AgentApi(
        node_id,
        settings.version,
        journal=journal,
        orders=workloads.orders,
        host_sampler=node.host_sampler,
        runtimes=runtimes.types,
        clock=clock,
        garbage=workloads.garbage,
        sessions=environment.sessions
        or Sessions(
            journal,
            runtimes.docker,
            workloads.previous_logs,
            lambda: _consoles(environment),
            exec_enabled=settings.exec_enabled,
        ),
        usage_sampler=node.usage_sampler,
        inventory=Inventory(
            environment.volumes, lambda: runtimes.disks, journal, shared.locks, shared.owned
        ),
        images=_images(runtimes, shared.owned),
        supervisor=shared.supervisor,
        owned=shared.owned,
        calls=shared.metrics.calls,
        refusals=Refusals(clock),
        networks=shared.networks,
    )


def build_session(
    settings: AgentSettings,
    environment: Environment,
    shared: Shared,
    node: NodeComponents,
    api: AgentApi,
    registration: NodeRegistration,
) -> SchedulerSession:
    return SchedulerSession(
        registration,
        settings.scheduler_addr,
        node.capabilities.collect,
        connect=environment.connect or build_connect(settings, environment, shared, api),
        random=environment.random,
        journal=environment.journal,
        pending_reports=environment.pending_reports,
        clock=environment.clock,
        metrics=shared.metrics,
        contact=shared.contact,
        reports=ReportBuilder(
            registration.node_id,
            environment.journal,
            node.host_sampler,
            node.usage_sampler,
            environment.clock,
            shared.supervisor,
            unavailable=node.unavailable,
            runtime_problem=node.watches.problem,
            policy=policy_of(settings),
            networks=shared.networks,
        ),
        find_service=lambda name: _find_service(name, settings.dns_server),
    )


def build_registration(
    settings: AgentSettings, node_id: NodeId, environment: Environment, *, port: int
) -> NodeRegistration:
    """`port` is the port of the agent's gRPC server."""
    labels = dict(settings.node_labels)
    labels |= {"region": settings.node_region} if settings.node_region else {}
    labels |= {"env": settings.node_env} if settings.node_env else {}
    endpoint = settings.agent_grpc_endpoint
    if not endpoint and settings.grpc_addr not in _WILDCARDS:
        endpoint = f"{settings.grpc_addr}:{port}"
    return NodeRegistration(
        node_id,
        settings.cluster_id,
        settings.version,
        labels=lambda: {**environment.labels, **labels},
        endpoint=endpoint,
        port=port,
        boot_id=environment.boot_id,
    )


def build_connect(
    settings: AgentSettings, environment: Environment, shared: Shared, api: AgentApi
) -> Connect:
    calls, tls = TunnelServer(api, shared.supervisor), environment.tls
    if tls is None or not settings.calls_with_tls:
        return connect_stream(calls, new_channel, certificate=lambda: None)
    return connect_stream(calls, tls.dial(Role.SCHEDULER), certificate=tls.in_use)


def _count_health(journal: Journal) -> Mapping[str, int]:
    metadata = (entry.status.metadata for entry in journal.entries.values())
    return Counter(words[HEALTH] for words in metadata if HEALTH in words)


def _consoles(environment: Environment) -> ConsoleService | None:
    vms = environment.runtimes.vms
    if vms is None:
        return None
    return ConsoleService(environment.journal, vms, environment.clock)


def _images(runtimes: NodeRuntimes, owned: OwnedWork) -> Callable[[], ImageApi | None]:
    """One API per store, because it limits the concurrent uploads."""
    apis: dict[ImageStore, ImageApi] = {}

    def images() -> ImageApi | None:
        store = runtimes.images
        return apis.setdefault(store, ImageApi(store, owned)) if store is not None else None

    return images


def _find_service(name: str, server: str) -> list[str]:
    from persys.infra.net.srv import find_service  # imported only for SRV names

    return find_service(name, server=server, deadline_seconds=CALL_DEADLINE_SECONDS)
