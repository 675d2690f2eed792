"""The composition root: the only place where the agent's parts meet."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random, SystemRandom
from typing import Any

import structlog

from persys.agent import host
from persys.agent.access import Access
from persys.agent.admission import Admission, Bounds
from persys.agent.agent_api import SERVICE, SERVICE_DESCRIPTOR, AgentApi
from persys.agent.calls import StreamedCalls
from persys.agent.collector import Collector
from persys.agent.consoles import Consoles
from persys.agent.contact import Contact
from persys.agent.door import new_door
from persys.agent.finding import (
    container_files,
    find_runtimes,
    has_machines,
    leftovers_of,
    machine_access,
    open_images,
    samplers_of,
)
from persys.agent.garbage import Garbage
from persys.agent.image_door import ImageDoor
from persys.agent.images import ImageStore
from persys.agent.intake import Intake
from persys.agent.inventory import Inventory
from persys.agent.ledger import Ledger
from persys.agent.link import CALL_DEADLINE_SECONDS, Connect
from persys.agent.meter import Meter, Sampler
from persys.agent.metrics import Metrics
from persys.agent.news import News
from persys.agent.past import Past
from persys.agent.policy import policy_of
from persys.agent.pools import Pools
from persys.agent.ports import Disks, Leftovers, Machine, PoolSource, Runtime, Volumes
from persys.agent.probes import Probes
from persys.agent.pulls import Pulls
from persys.agent.reconciler import Watch, look_at_all
from persys.agent.runtimes.compose_setup import has_git
from persys.agent.runtimes.docker_access import DockerAccess
from persys.agent.runtimes.docker_engine import Engine
from persys.agent.runtimes.docker_form import Owner
from persys.agent.runtimes.libvirt_pools import LibvirtPools
from persys.agent.runtimes.machine_access import MachineAccess
from persys.agent.runtimes.machine_setup import (
    disk_inventory,
    find_hypervisor,
    machine_runtime,
)
from persys.agent.settings import AgentSettings
from persys.agent.state import State
from persys.agent.steps import Steps
from persys.agent.stream import over_stream
from persys.agent.trust import by_vault, node_of, open_tls
from persys.agent.uplink import Membership, Uplink
from persys.agent.volumes.book import Book
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.setup import find_drivers
from persys.agent.volumes.tools import Tools
from persys.agent.worker import Worker
from persys.core.admission import Load
from persys.core.garbage import Ages
from persys.core.health import HEALTH
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock, SystemClock, since_boot
from persys.infra.enrolling import ensure_certificate
from persys.infra.gauges import watch_certificate
from persys.infra.guarded import Guarded
from persys.infra.http import SideServer
from persys.infra.process import serve
from persys.infra.rpc import new_server, start_server
from persys.infra.tls import Tls
from persys.infra.turns import Turns
from persys.model import feature
from persys.model.identity import Role
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities
from persys.model.resources import Resources
from persys.model.spec import WorkloadType
from persys.wire.gen.agent.v1 import agent_pb2_grpc

log = structlog.get_logger()

STOP_GRACE_SECONDS = 2.0
_WILDCARDS = ("", "0.0.0.0", "::", "[::]")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that an agent touches outside itself. A simulation has its own of each."""

    state: State
    runtimes: Mapping[WorkloadType, Runtime]
    volumes: Volumes
    machine: Machine
    clock: Clock
    connect: Connect | None  # None: by stream where the scheduler knows streams, else by calls
    random: Random
    access: DockerAccess | None = None  # into workloads; a simulation has no inside
    machines: MachineAccess | None = None  # the same for machines
    samplers: Mapping[str, Sampler] = field(
        default_factory=dict
    )  # of what workloads use, by source
    leftovers: Leftovers | None = None
    disks: Disks | None = None  # of machines
    pools: PoolSource | None = None  # beside the local one
    images: ImageStore | None = None  # that machines start from
    tls: Tls | None = None


async def run_agent(settings: AgentSettings, stop: asyncio.Event) -> None:
    clock = SystemClock(monotonic=since_boot)  # leases run on while the machine sleeps
    source = by_vault(settings, clock)
    if source is not None and not await ensure_certificate(
        settings.files, source.identity, source, clock, stop
    ):
        return
    tls = open_tls(settings, clock, source)
    node_id = node_of(settings, tls)
    state = State(settings.state_path, cluster_id=settings.cluster_id, node_id=node_id)
    engine = Engine(settings.docker_host) if settings.docker_enabled else None
    owner = Owner(settings.cluster_id, node_id)
    runtimes = await find_runtimes(settings, owner, engine)
    hypervisor = await find_hypervisor(settings, clock, has_machines=has_machines(state))
    images = open_images(settings, state, clock) if hypervisor is not None else None
    if hypervisor is not None and images is not None:
        runtimes[WorkloadType.VM] = machine_runtime(hypervisor, settings, owner, clock, images)
    around = Surroundings(
        state=state,
        runtimes=runtimes,
        volumes=ManagedVolumes(find_drivers(settings, Book(state), Tools()), Book(state), clock),
        machine=host,
        clock=clock,
        connect=None,
        random=SystemRandom(),
        access=DockerAccess(engine, owner) if engine else None,
        machines=machine_access(hypervisor, settings, owner) if hypervisor else None,
        samplers=samplers_of(engine, hypervisor, owner, state),
        leftovers=leftovers_of(engine, hypervisor, owner, container_files(settings, owner)),
        disks=disk_inventory(hypervisor, settings, owner, clock, images)
        if hypervisor is not None and images is not None
        else None,
        pools=LibvirtPools(hypervisor.libvirt, settings.vm_pool) if hypervisor else None,
        images=images,
        tls=tls,
    )
    try:
        await Agent(settings, node_id, around).run(stop)
    finally:
        if engine is not None:
            await engine.close()
        if hypervisor is not None:
            await hypervisor.libvirt.close()
        state.close()


class Agent:
    def __init__(self, settings: AgentSettings, node_id: NodeId, around: Surroundings) -> None:
        self._settings = settings
        self._node_id = node_id
        self._around = around
        self._state = state = around.state
        self._clock = around.clock
        self._news = News()
        self._metrics = Metrics(self._count_workloads, self._count_health)
        self._supervisor = Supervisor("agent", self._clock, self._metrics.registry)
        if around.tls is not None:
            watch_certificate(self._metrics.registry, "agent", around.tls)
        self._runtimes = around.runtimes
        turns: Turns[WorkloadId] = Turns()
        ledger = Ledger(
            state, self._clock, self._metrics, tell=self._news.tell, random=around.random
        )
        pulls = Pulls(state, ledger, self._clock, self._metrics)
        self._access, past = None, None
        if around.access is not None:
            past = Past(settings.state_path.parent / "past", around.access)
        if around.access is not None or around.machines is not None:
            consoles = None
            if around.machines is not None:
                consoles = Consoles(state, around.machines, self._clock)
            self._access = Access(
                state, around.access, past, consoles, exec_enabled=settings.exec_enabled
            )
        steps = Steps(self._runtimes, around.volumes, pulls, past)
        self._probes = Probes(self._clock, self._metrics)
        self._worker = Worker(state, turns, steps, self._probes, ledger, self._clock)
        self._probes.wake = self._worker.wake
        self._contact = Contact(state, self._clock, wake=self._worker.wake)
        self._meter = Meter(around.samplers, state, self._clock)
        self._metrics.tell_usage(lambda: self._meter.usage)
        self._collector = Collector(state, settings.storage_local_root, around.machine)
        self._pools = Pools(around.machine, settings.storage_local_root, around.pools)
        self._inventory = Inventory(around.volumes, around.disks, state, turns)
        if around.images is not None:
            around.images.changed = self._news.tell_node
        self._admission = Admission(
            self._bounds(),
            state,
            self._collector,
            self._metrics,
            is_here=steps.may_have,
        )
        self._garbage = Garbage(
            state,
            turns,
            self._clock,
            self._metrics,
            found=around.leftovers,
            ages=Ages(
                zombie=settings.gc_zombie_after,
                stray=settings.gc_stray_after,
                image=settings.gc_image_after,
                action=settings.gc_action_after,
            ),
            interval=settings.gc_interval,
            dry_run=settings.gc_dry_run,
            in_touch=self._contact.unbroken_for,
        )
        self._intake = Intake(
            state,
            turns,
            self._worker,
            ledger,
            self._clock,
            policy=policy_of(settings),
            volumes=around.volumes,
            admission=self._admission,
            types=self._runtimes.keys(),
            tell=self._news.tell,
        )
        if not settings.standalone:
            self._worker.is_alone = self._contact.is_lost_for
            self._intake.has_contact_for = self._contact.is_made_for
        self._watches = {
            kind: Watch(kind, runtime, self._worker, self._metrics)
            for kind, runtime in self._runtimes.items()
        }
        self._uplink: Uplink | None = None

    async def run(self, stop: asyncio.Event) -> None:
        settings, tls = self._settings, self._around.tls
        server = new_server()
        door = new_door(settings, tls, self._clock, self._metrics)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(
            Guarded(self.api(), SERVICE_DESCRIPTOR, door, self._supervisor), server
        )
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
            await self._pools.look_first()
            log.info("agent.serving", node_id=self._node_id, port=port, version=settings.version)
            await serve(self.parts(port), stop)
        finally:
            await server.stop(STOP_GRACE_SECONDS)
            await side.stop()

    def api(self) -> AgentApi:
        return AgentApi(
            self._node_id,
            self._settings.version,
            state=self._state,
            intake=self._intake,
            collector=self._collector,
            runtimes=self._runtimes,
            clock=self._clock,
            garbage=self._garbage,
            access=self._access,
            meter=self._meter,
            inventory=self._inventory,
            images=ImageDoor(self._around.images) if self._around.images is not None else None,
        )

    def parts(self, port: int) -> dict[str, Callable[[], Awaitable[None]]]:
        """What runs as long as the agent does. `port` is where it serves."""
        settings = self._settings
        self._worker.wake_all()
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            "state": self._state.run,
            "worker": self._worker.run,
            "probes": self._probes.run,
            "collector": self._collector.run,
            "admission": self._admission.run,
            "pools": self._pools.run,
        }
        if self._around.tls is not None:
            parts["certificates"] = self._around.tls.run
        if settings.gc_enabled:
            parts["garbage"] = self._garbage.run
        if self._around.samplers:
            parts["meter"] = self._meter.run
        for kind, watch in self._watches.items():
            parts[f"watch-{kind}"] = watch.run
        if settings.reconcile_enabled:
            parts["look-at-all"] = partial(
                look_at_all,
                self._worker,
                settings.reconcile_interval,
                standalone=settings.standalone,
            )
        if not settings.standalone:
            self._uplink = self._new_uplink(port)
            parts["uplink"] = self._uplink.run
            parts["contact"] = self._contact.run
        return parts

    def _new_uplink(self, port: int) -> Uplink:
        settings = self._settings
        labels = dict(settings.node_labels)
        labels |= {"region": settings.node_region} if settings.node_region else {}
        labels |= {"env": settings.node_env} if settings.node_env else {}
        endpoint = settings.agent_grpc_endpoint
        if not endpoint and settings.grpc_addr not in _WILDCARDS:
            endpoint = f"{settings.grpc_addr}:{port}"
        return Uplink(
            Membership(
                self._node_id,
                settings.cluster_id,
                settings.version,
                labels=labels,
                endpoint=endpoint,
                port=port,
            ),
            settings.scheduler_addr,
            self._capabilities,
            connect=self._around.connect or self._connect(),
            random=self._around.random,
            state=self._state,
            news=self._news,
            intake=self._intake,
            collector=self._collector,
            meter=self._meter,
            clock=self._clock,
            metrics=self._metrics,
            contact=self._contact,
            find_service=self._find_service,
        )

    def _connect(self) -> Connect:
        calls, tls = StreamedCalls(self.api()), self._around.tls
        if tls is None or not self._settings.calls_with_tls:
            return over_stream(calls)
        return over_stream(calls, tls.dial(Role.SCHEDULER), certificate=tls.in_use)

    def _find_service(self, name: str) -> list[str]:
        from persys.infra.srv import find_service  # most have plain addresses

        server = self._settings.dns_server
        return find_service(name, server=server, deadline_seconds=CALL_DEADLINE_SECONDS)

    def _capabilities(self) -> Capabilities:
        settings = self._settings
        features = {
            feature.PUSHES_STATUS,
            feature.CONTAINER_LIMITS,
            feature.STOP_AFTER,
            feature.CREDENTIALS,
            feature.HEALTH,
        }
        if settings.allow_privileged:
            features.add(feature.PRIVILEGED)
        if WorkloadType.CONTAINER in self._runtimes:
            features.add(feature.FILES)
        if WorkloadType.COMPOSE in self._runtimes:
            features |= {feature.COMPOSE, feature.COMPOSE_GIT} if has_git() else {feature.COMPOSE}
        if WorkloadType.VM in self._runtimes:
            features.add(feature.MACHINES)
        if self._around.images is not None:
            features |= {f"{feature.IMAGE}{name}" for name in self._around.images.names}
        machine = self._around.machine
        return Capabilities(
            cpu_millicores=machine.cpu_millicores(),
            memory_mb=machine.memory().total_mb,
            pools=self._pools.now(),
            types=frozenset(self._runtimes),
            storage_drivers=self._around.volumes.drivers,
            reserved=Resources(
                settings.system_reserve_cpu_millicores, settings.system_reserve_memory_mb
            ),
            features=frozenset(features),
        )

    def _bounds(self) -> Bounds:
        settings = self._settings
        return Bounds(
            Load(
                settings.admission_cpu_percent,
                settings.admission_memory_percent,
                settings.admission_disk_percent,
            ),
            settings.admission_half_life,
            self._capabilities().allocatable,
        )

    def _count_workloads(self) -> Mapping[str, int]:
        return Counter(entry.standing.actual.value for entry in self._state.entries.values())

    def _count_health(self) -> Mapping[str, int]:
        standings = (entry.standing.metadata for entry in self._state.entries.values())
        return Counter(words[HEALTH] for words in standings if HEALTH in words)

    def _health(self) -> Mapping[str, Any]:
        runtimes = {
            kind.value: "ok" if watch.listening else "no answer"
            for kind, watch in self._watches.items()
        }
        scheduler = "standalone"
        if self._uplink is not None:
            scheduler = self._uplink.connected_to or "not connected"
        tls = self._around.tls
        return {
            "status": "ok" if all(word == "ok" for word in runtimes.values()) else "degraded",
            "service": "persys-agent",
            "version": self._settings.version,
            "node_id": self._node_id,
            "runtimes": runtimes,
            "scheduler": scheduler,
            "workloads": len(self._state.entries),
            **({"certificate": tls.health()} if tls is not None else {}),
        }
