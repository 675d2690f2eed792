"""Detects libvirt and KVM on this host and builds the VM runtime."""

import platform
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from persys.agent.images.store import IMAGE_FILES, Needs
from persys.agent.journal.store import Journal
from persys.agent.ports import Images
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm.kvm import Accel, detect_accel
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError
from persys.agent.runtimes.vm.runtime import VmRuntime
from persys.agent.runtimes.vm.state_dir import state_dirs
from persys.agent.runtimes.vm.storage.disks import DiskInventory, VmDisks
from persys.agent.runtimes.vm.storage.pools import AgentPool
from persys.agent.settings import AgentSettings
from persys.agent.workloads.node_policy import policy_of
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.clock import Clock
from persys.infra.libvirt_binding import find_binding
from persys.model.spec import VMSpec

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Hypervisor:
    libvirt: Libvirt
    accel: Accel


async def detect_hypervisor(
    settings: AgentSettings, clock: Clock, paths: PathCalls, *, has_vms: bool, is_first: bool
) -> Hypervisor | None:
    """None if libvirt is absent or disabled, which is logged once.

    A node with VMs keeps the type while libvirt does not respond: the state of its VMs is unknown then.
    """
    if not settings.vm_enabled:
        return None
    write = log.info if is_first else log.debug
    try:
        binding = find_binding()
    except RuntimeUnavailableError as err:
        write("machines.absent", reason=str(err))
        return None
    libvirt = Libvirt(settings.libvirt_uri)
    try:
        version = await libvirt.call(lambda connection: _version(connection.getLibVersion()))
    except RuntimeUnavailableError as err:
        if not has_vms:
            write("machines.absent", reason=str(err))
            await libvirt.close()
            return None
        version = "silent"
    accel = await _accel(settings, libvirt, clock, paths)
    log.info("machines.found", version=version, accel=accel.value, binding=binding.source)
    return Hypervisor(libvirt, accel)


def build_vm_runtime(
    hypervisor: Hypervisor,
    settings: AgentSettings,
    owner: OwnerLabels,
    clock: Clock,
    images: Images,
    paths: PathCalls,
) -> VmRuntime:
    return VmRuntime(
        hypervisor.libvirt,
        owner,
        clock,
        accel=hypervisor.accel,
        images=images,
        disks=_disks(hypervisor, settings, clock, images, paths),
        paths=paths,
        root=settings.vm_dir.absolute(),
        stop_grace_seconds=round(settings.vm_stop_grace.total_seconds()),
    )


class VmImageUsers:
    """Implements `ImageUsers`: from the journal and from the records of disks, which may outlive
    their workload."""

    def __init__(self, journal: Journal, root: Path) -> None:
        self._journal = journal
        self.root = root

    def by_name(self) -> Needs:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for workload_id, entry in self._journal.entries.items():
            if isinstance(entry.order.spec, VMSpec) and entry.order.spec.os_image:
                found[entry.order.spec.os_image].add(workload_id)
        return {name: frozenset(users) for name, users in found.items()}

    def by_path(self) -> Needs:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for state_dir in state_dirs(self.root):
            for disk in state_dir.read_disks():
                found[disk.base].add(state_dir.workload_id)
        return {path: frozenset(users) for path, users in found.items() if path}


def build_disk_inventory(
    hypervisor: Hypervisor,
    settings: AgentSettings,
    owner: OwnerLabels,
    clock: Clock,
    images: Images,
    paths: PathCalls,
) -> DiskInventory:
    disks = _disks(hypervisor, settings, clock, images, paths)
    return DiskInventory(hypervisor.libvirt, disks, owner, paths, settings.vm_dir.absolute())


def agent_pool(settings: AgentSettings) -> AgentPool:
    return AgentPool(settings.vm_pool, settings.vm_disks_dir.absolute())


def _disks(
    hypervisor: Hypervisor,
    settings: AgentSettings,
    clock: Clock,
    images: Images,
    paths: PathCalls,
) -> VmDisks:
    pool = agent_pool(settings)
    bases = settings.vm_images_dir.absolute() / IMAGE_FILES
    return VmDisks(
        hypervisor.libvirt, images, pool, clock, paths, policy=policy_of(settings), bases=bases
    )


async def _accel(
    settings: AgentSettings, libvirt: Libvirt, clock: Clock, paths: PathCalls
) -> Accel:
    """KVM is tried only if libvirt offers it."""
    if settings.vm_accel == "auto":
        with suppress(RuntimeUnavailableError):
            try:
                await libvirt.call(_check_kvm)
            except LibvirtError:
                return Accel.TCG
    found_path = settings.state_path.absolute().parent / "kvm.json"
    return await detect_accel(settings.vm_accel, found_path, clock, paths)


def _check_kvm(connection: Any) -> None:
    connection.getDomainCapabilities(None, platform.machine(), None, Accel.KVM.value)


def _version(number: int) -> str:
    """Format a libvirt version: 9000000 is 9.0.0."""
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"
