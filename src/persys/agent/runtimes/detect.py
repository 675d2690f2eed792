"""Detects and builds the runtimes of this node, at start and while the agent runs.

Docker is present whenever it is enabled; its health is checked elsewhere. Compose and libvirt are added when
they are found, including after the agent has started. A runtime is never removed: if it stops responding, the
state of its workloads is unknown, not absent.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

import structlog

from persys.agent.credentials import Credentials
from persys.agent.garbage_collection import AllGarbageSources
from persys.agent.images.store import ImageStore
from persys.agent.journal.store import Journal
from persys.agent.networks.devices import NetworkHost
from persys.agent.networks.docker_networks import DockerNetworks, NetworkParts
from persys.agent.networks.members import Members
from persys.agent.node.usage import Sampler
from persys.agent.ports import Disks, GarbageSource, Guests, PoolSource, Runtime
from persys.agent.runtimes.compose.cli import detect
from persys.agent.runtimes.compose.git import Git
from persys.agent.runtimes.compose.runtime import ComposeRuntime
from persys.agent.runtimes.compose.source import ComposeSource
from persys.agent.runtimes.docker.config_files import ContainerFiles, find_memory_directory
from persys.agent.runtimes.docker.disk_limits import DiskLimits
from persys.agent.runtimes.docker.engine import Engine
from persys.agent.runtimes.docker.exec_logs import DockerAccess
from persys.agent.runtimes.docker.garbage import DockerGarbage
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.docker.pull import Puller
from persys.agent.runtimes.docker.runtime import DockerRuntime
from persys.agent.runtimes.docker.usage import DockerUsage
from persys.agent.runtimes.vm.console import VmAccess
from persys.agent.runtimes.vm.detect import (
    Hypervisor,
    VmImageUsers,
    agent_pool,
    build_disk_inventory,
    build_vm_runtime,
    detect_hypervisor,
)
from persys.agent.runtimes.vm.inspection import VmGarbage, VmGuests
from persys.agent.runtimes.vm.storage.pools import LibvirtPools
from persys.agent.runtimes.vm.usage import VmUsage
from persys.agent.settings import STOP, AgentSettings
from persys.agent.workloads.node_policy import NodePolicy, policy_of
from persys.core.agent.garbage import Kind
from persys.errors import UnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.clock import Clock, SystemClock
from persys.model.ids import WorkloadId
from persys.model.node import GIB
from persys.model.spec import WorkloadType

log = structlog.get_logger()


_OF_DOCKER = frozenset({Kind.CONTAINER, Kind.NETWORK, Kind.IMAGE, Kind.FILES})
_OF_LIBVIRT = frozenset({Kind.VM})


@dataclass(slots=True)
class NodeRuntimes:
    """The runtimes of this node and their parts. Runtimes are added while the agent runs."""

    types: dict[WorkloadType, Runtime] = field(default_factory=dict)
    samplers: dict[str, Sampler] = field(default_factory=dict)  # usage samplers by source
    garbage: dict[frozenset[Kind], GarbageSource] = field(default_factory=dict)
    docker: DockerAccess | None = None  # logs and exec of containers
    vms: VmAccess | None = None  # logs and consoles of VMs
    guests: Guests | None = None  # guest agents of VMs
    disks: Disks | None = None  # VM disks
    pools: PoolSource | None = None  # libvirt storage pools
    images: ImageStore | None = None  # base images of VM disks
    disk_limits: DiskLimits | None = None  # of containers and stacks
    networks: NetworkParts | None = None  # across nodes

    def garbage_sources(self) -> GarbageSource:
        return AllGarbageSources(self.garbage)


class Detector:
    """Adds detected runtimes to `found`. Each runtime is built once."""

    def __init__(
        self,
        settings: AgentSettings,
        owner: OwnerLabels,
        journal: Journal,
        clock: Clock,
        paths: PathCalls,
        *,
        images_changed: Callable[[], None],
    ) -> None:
        """Raises SettingsError if a runtime setting is invalid."""
        self.found = NodeRuntimes()
        self._settings = settings
        self._owner = owner
        self._journal = journal
        self._clock = clock
        self._paths = paths
        self._images_changed = images_changed
        self._credentials = Credentials(settings.credentials_dir)
        self._hypervisor: Hypervisor | None = None
        self._compose_git = False
        self._is_first = True
        self._engine: Engine | None = None
        if settings.docker_enabled:
            self._engine = Engine(settings.docker_host)
            self._puller = Puller(self._engine, self._credentials, paths)
            self._disk_limits = DiskLimits(
                self._engine, owner, stops=settings.disk_limit_policy == STOP
            )
            self.found.disk_limits = self._disk_limits
            host = NetworkHost()
            self._members = Members(journal)
            self.found.networks = NetworkParts(
                owner.mark, self._members, host, DockerNetworks(self._engine, owner, host)
            )
            self._add_docker(self._engine)

    async def detect(self) -> bool:
        """Detect runtimes. Returns whether a new one was found. Raises SettingsError."""
        found = [await self._detect_compose(), await self._detect_libvirt()]
        self._is_first = False
        return any(found)

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
        if self._hypervisor is not None:
            await self._hypervisor.libvirt.close()

    def _add_docker(self, engine: Engine) -> None:
        settings, found = self._settings, self.found
        files = container_files(settings, self._owner)
        files.move_to_memory(entry.order for entry in self._journal.entries.values())
        found.types[WorkloadType.CONTAINER] = DockerRuntime(
            engine,
            self._owner,
            puller=self._puller,
            files=files,
            paths=self._paths,
            policy=policy_of(settings),
            stop_grace_seconds=round(settings.stop_grace.total_seconds()),
            pids_max=settings.pids_max,
            disk_limits=self._disk_limits,
            members=self._members,
        )
        found.docker = DockerAccess(engine, self._owner)
        found.samplers["docker"] = DockerUsage(engine, self._owner, SystemClock(), self._paths)
        found.garbage[_OF_DOCKER] = DockerGarbage(engine, self._owner, files, self._paths)

    async def _detect_compose(self) -> bool:
        """The runtime is built again once git is installed: git stacks can run from then on."""
        present = WorkloadType.COMPOSE in self.found.types
        if self._engine is None or (present and has_git() is self._compose_git):
            return False
        compose = await detect_compose(
            self._settings,
            self._engine,
            self._owner,
            policy=policy_of(self._settings),
            puller=self._puller,
            credentials=self._credentials,
            paths=self._paths,
            disk_limits=self._disk_limits,
            members=self._members,
            is_first=self._is_first,
        )
        if compose is None:
            return False
        self._compose_git = has_git()
        self.found.types[WorkloadType.COMPOSE] = compose
        return True

    async def _detect_libvirt(self) -> bool:
        if self._hypervisor is not None:
            return False
        settings, owner, clock, found = self._settings, self._owner, self._clock, self.found
        paths = self._paths
        hypervisor = await detect_hypervisor(
            settings,
            clock,
            paths,
            has_vms=has_vms(self._journal),
            is_first=self._is_first,
        )
        if hypervisor is None:
            return False
        images = await open_images(
            settings,
            self._journal,
            clock,
            paths,
            changed=self._images_changed,
            is_first=self._is_first,
        )
        if images is None:
            await hypervisor.libvirt.close()
            return False
        self._hypervisor = hypervisor
        libvirt = hypervisor.libvirt
        found.images = images
        found.guests = VmGuests(libvirt)
        found.vms = build_vm_access(hypervisor, settings, owner, paths)
        found.disks = build_disk_inventory(hypervisor, settings, owner, clock, images, paths)
        found.pools = LibvirtPools(libvirt, agent_pool(settings))
        found.samplers["libvirt"] = VmUsage(
            libvirt, owner, SystemClock(), partial(vm_ids, self._journal)
        )
        found.garbage[_OF_LIBVIRT] = VmGarbage(libvirt, owner)
        found.types[WorkloadType.VM] = build_vm_runtime(
            hypervisor, settings, owner, clock, images, paths
        )
        return True


async def open_images(
    settings: AgentSettings,
    journal: Journal,
    clock: Clock,
    paths: PathCalls,
    *,
    changed: Callable[[], None],
    is_first: bool,
) -> ImageStore | None:
    """None if the directory cannot be used, for example without root: the node then runs no VMs."""
    images = ImageStore(
        settings.vm_images_dir,
        clock,
        paths,
        policy=policy_of(settings),
        users=VmImageUsers(journal, settings.vm_dir.absolute()),
        changed=changed,
    )
    try:
        await images.open()
    except (OSError, UnavailableError) as err:
        write_log = log.warning if is_first else log.debug
        write_log("machines.absent", reason=f"PERSYS_VM_IMAGES_DIR cannot be used: {err}")
        return None
    return images


def vm_ids(journal: Journal) -> list[WorkloadId]:
    entries = journal.entries.items()
    return [workload_id for workload_id, entry in entries if entry.order.type is WorkloadType.VM]


def build_vm_access(
    hypervisor: Hypervisor, settings: AgentSettings, owner: OwnerLabels, paths: PathCalls
) -> VmAccess:
    return VmAccess(hypervisor.libvirt, owner, paths, settings.vm_dir.absolute())


def has_vms(journal: Journal) -> bool:
    return bool(vm_ids(journal))


def container_files(settings: AgentSettings, owner: OwnerLabels) -> ContainerFiles:
    """Container files, next to the journal. Several agents may share that directory."""
    memory = find_memory_directory(settings.secret_files_dir)
    return ContainerFiles(_files_root(settings, owner), memory)


def workload_roots(settings: AgentSettings, owner: OwnerLabels) -> list[Path]:
    """Directories below which every workload has its own directories."""
    state, local = settings.state_path.absolute().parent, settings.storage_local_root.resolve()
    return [
        _files_root(settings, owner).absolute(),
        state / "past",
        state / "stacks",
        Path("/dev/shm"),  # noqa: S108  # only compared
        Path("/proc"),
        *(local / name for name in ("", ".files", ".disks", ".doomed")),
        settings.storage_nfs_stage_dir.resolve() / settings.cluster_id,
        settings.storage_ceph_stage_dir.resolve(),
        settings.vm_dir.absolute(),
        settings.vm_images_dir.absolute() / "incoming",
    ]


def _files_root(settings: AgentSettings, owner: OwnerLabels) -> Path:
    return settings.state_path.parent / "files" / quote(owner.node_id, safe="")


async def detect_compose(
    settings: AgentSettings,
    engine: Engine,
    owner: OwnerLabels,
    *,
    policy: NodePolicy,
    puller: Puller,
    credentials: Credentials,
    paths: PathCalls,
    disk_limits: DiskLimits,
    members: Members,
    is_first: bool,
) -> ComposeRuntime | None:
    """None if Compose is absent or disabled, which is logged once. Raises SettingsError."""
    if not settings.compose_enabled:
        return None
    cli = await detect(settings.compose_binary, settings.docker_host)
    if cli is None:
        write = log.info if is_first else log.debug
        write("compose.absent", reason="neither 'docker compose' nor 'docker-compose' is installed")
        return None
    git = None
    if has_git():
        git = Git(credentials, paths, bytes_max=settings.git_max_gb * GIB)
    log.info("compose.found", version=cli.version, git=git is not None)
    return ComposeRuntime(
        cli,
        ComposeSource(cli, git, policy, paths, pids_max=settings.pids_max),
        engine,
        owner,
        paths,
        puller=puller,
        root=_root(settings),
        stop_grace_seconds=round(settings.stop_grace.total_seconds()),
        pids_max=settings.pids_max,
        disk_limits=disk_limits,
        members=members,
    )


def has_git() -> bool:
    return shutil.which("git") is not None


def _root(settings: AgentSettings) -> Path:
    return settings.state_path.absolute().parent / "stacks"
