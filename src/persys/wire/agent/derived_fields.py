"""Fields that the scheduler derives for the agent's form of a spec: limits, names, devices, MAC addresses.

Third-party agents need all of them. Each depends on the workload only: the same workload gives the same
message on every dispatch by every scheduler.
"""

from collections.abc import Iterator
from hashlib import sha256
from string import ascii_lowercase

from msgspec.structs import replace

from persys.core.secrets import Resolved
from persys.model.placement import Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    Network,
    Spec,
    VMSpec,
    local_gb,
)
from persys.model.workload import Workload
from persys.wire.spec.checks import CPU_SHARES_MAX

CPU_SHARES_LEAST = 2


def with_derived_fields(workload: Workload, resolved: Resolved | None = None) -> Spec:
    """The workload's spec with every derived field set."""
    match workload.spec if resolved is None else resolved.spec:
        case ContainerSpec() as container:
            return _limited(container, workload.resources)
        case ComposeSpec() as compose:
            return replace(
                compose,
                project_name=compose.project_name or f"persys-{workload.id}",
                project_derived=compose.project_derived or not compose.project_name,
                reserved=workload.resources,
            )
        case VMSpec() as vm:
            return replace(
                vm,
                name=vm.name or workload.id,
                disks=tuple(_disks(_with_root(vm))),
                networks=tuple(
                    _network(network, f"{workload.id}/{index}")
                    for index, network in enumerate(vm.networks)
                ),
            )


def _limited(spec: ContainerSpec, resources: Resources) -> ContainerSpec:
    """Resources that are not requested are not limited: 0 is Docker's default for each limit."""
    return replace(
        spec,
        cpu_millicores=resources.cpu_millicores or spec.cpu_millicores,
        cpu_shares=_shares(resources.cpu_millicores) or spec.cpu_shares,
        memory_bytes=resources.memory_mb << 20 or spec.memory_bytes,
        # A stated disk size covers the volumes, which have limits of their own.
        disk_gb=max(0, resources.disk_gb - local_gb(spec.managed_volumes)) or spec.disk_gb,
    )


def _shares(cpu_millicores: int) -> int:
    if not cpu_millicores:
        return 0
    return min(max(CPU_SHARES_LEAST, cpu_millicores * 1024 // 1000), CPU_SHARES_MAX)


def _with_root(vm: VMSpec) -> tuple[Disk, ...]:
    """An image needs a disk to boot from. A disk that is added here has the size of the image."""
    if vm.os_image and all(disk.type == "cdrom" for disk in vm.disks):
        return (Disk(), *vm.disks)
    return vm.disks


def _disks(disks: tuple[Disk, ...]) -> Iterator[Disk]:
    taken = {disk.device for disk in disks}
    for disk in disks:
        kind = disk.type or "disk"
        device = disk.device
        if not device:
            # A CD-ROM drive cannot be on the virtio bus.
            device = _free_device("sd" if kind == "cdrom" else "vd", taken)
            taken.add(device)
        image_format = disk.format or ("iso" if kind == "cdrom" else "qcow2")
        yield replace(disk, device=device, type=kind, format=image_format)


def _free_device(prefix: str, taken: set[str]) -> str:
    return next(name for name in _device_names(prefix) if name not in taken)


def _device_names(prefix: str) -> Iterator[str]:
    for letter in ascii_lowercase:
        yield prefix + letter
    for first in ascii_lowercase:
        for second in ascii_lowercase:
            yield prefix + first + second


def _network(network: Network, seed: str) -> Network:
    if network.mac_address:
        return network
    # QEMU's locally administered prefix. The rest is derived from the id and never changes.
    tail = sha256(seed.encode()).digest()[:3]
    return replace(network, mac_address=f"52:54:00:{tail.hex(':')}")
