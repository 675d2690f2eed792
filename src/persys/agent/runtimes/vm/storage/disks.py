"""Disks of VMs, in libvirt storage pools or at paths of the spec. Disks are data.

An existing disk is kept. It grows when the spec requests more and never shrinks. Only disks that this agent
created are removed: each disk is recorded before it is created, and an existing volume without a record is
rejected. A disk file that existed before belongs to the user.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from persys.agent.ports import BaseImage, Images
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm import power
from persys.agent.runtimes.vm.domain_xml import DiskPart, bus_of, domain_uuid, vm_spec
from persys.agent.runtimes.vm.libvirt import NAME_TAKEN, Libvirt, LibvirtError, VmError
from persys.agent.runtimes.vm.state_dir import DiskRecord, VmStateDir, state_dirs
from persys.agent.runtimes.vm.storage import pools
from persys.agent.runtimes.vm.storage.disk_guard import DiskGuard
from persys.agent.runtimes.vm.storage.pools import AgentPool, Measured, measure
from persys.agent.runtimes.vm.storage.qemu_img import DiskFiles
from persys.agent.workloads.node_policy import NodePolicy
from persys.core.agent.storage import QCOW2
from persys.errors import NotFoundError, RefusedError, UnavailableError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.node import DISK, GIB, VolumeState, VolumeView
from persys.model.spec import Disk, VMSpec
from persys.model.status import FailureReason
from persys.model.workload import Order

MAKE_SECONDS = 300.0  # some pools write the whole disk on creation


class VmDisks:
    def __init__(
        self,
        libvirt: Libvirt,
        images: Images,
        pool: AgentPool,
        clock: Clock,
        paths: PathCalls,
        *,
        policy: NodePolicy,
        bases: Path,
    ) -> None:
        """`bases` is the directory of the images that disks may use as backing files."""
        self._libvirt = libvirt
        self._paths = paths
        self.guard = DiskGuard(policy, paths)
        self._files = DiskFiles(paths, bases=bases)
        self._images = images
        self._pool = pool
        self._clock = clock

    async def check(self, order: Order, state_dir: VmStateDir) -> None:
        """All checks that are possible before anything is stopped or created. Raises VmError."""
        spec = vm_spec(order)
        recorded = await self.recorded(state_dir)
        for disk in spec.disks:
            _check(disk)
            known = next((one for one in recorded if one.device == disk.device), None)
            if known is not None:
                _check_same(disk, known, _image_of(disk, spec), self._pool_of(disk, recorded))
        for name in {self._pool_of(disk, recorded) for disk in spec.disks if not disk.path}:
            if name != self._pool.name:
                await self._libvirt.call(partial(pools.active_pool, name=name))

    async def recorded(self, state_dir: VmStateDir) -> tuple[DiskRecord, ...]:
        """The disks that this agent created for the VM. Raises OSError."""
        return await self._paths.run(state_dir.root, state_dir.read_disks)

    async def check_file(self, device: str, form: str, path: str) -> None:
        """Check that a VM can start from this disk. Raises VmError."""
        await self._files.check(device, form, path)

    async def ensure(self, order: Order, state_dir: VmStateDir) -> list[DiskPart]:
        """Create or grow the disks of the VM as needed. Raises VmError, LibvirtError."""
        spec = vm_spec(order)
        boot = _boot_order(spec)
        async with self.guard.held(spec.disks):  # no path may contain a link
            return [
                dataclasses.replace(
                    await self._ensure(disk, spec, state_dir), boot=boot[disk.device]
                )
                for disk in spec.disks
            ]

    async def remove(self, state_dir: VmStateDir) -> None:
        """Delete the disks that were created for this VM. Raises LibvirtError, VmError."""
        for disk in await self.recorded(state_dir):
            await self.remove_one(state_dir, disk)

    async def remove_one(self, state_dir: VmStateDir, disk: DiskRecord) -> None:
        if disk.path:
            await self._files.remove(disk.path)
        else:
            await self._libvirt.call(
                partial(pools.remove, pool=disk.pool, volume=disk.volume),
                deadline=MAKE_SECONDS,
            )
        left = tuple(other for other in await self.recorded(state_dir) if other != disk)
        await self._paths.run(state_dir.root, partial(state_dir.write_disks, left))

    def _pool_of(self, disk: Disk, recorded: tuple[DiskRecord, ...]) -> str:
        """The pool of a disk. Without a pool name an existing disk stays in its pool."""
        before = next((one.pool for one in recorded if one.device == disk.device), "")
        return disk.pool_name or before or self._pool.name

    async def _record(self, state_dir: VmStateDir, record: DiskRecord) -> None:
        others = (disk for disk in await self.recorded(state_dir) if disk.device != record.device)
        await self._paths.run(state_dir.root, partial(state_dir.write_disks, (*others, record)))

    async def _ensure(self, disk: Disk, spec: VMSpec, state_dir: VmStateDir) -> DiskPart:
        if disk.type == "cdrom" or disk.format == "iso":
            kind, source = await self._files.source_of(disk)
            cdrom = disk.type == "cdrom"
            return DiskPart(disk.device, "raw", source, kind, cdrom=cdrom, read_only=True)
        os_image = _image_of(disk, spec)
        base = await self._base(os_image)
        path = str(base.path) if base is not None else ""
        record = DiskRecord(disk.device, self._clock.now(), os_image=os_image, base=path)
        if disk.path:
            return await self._at_path(disk, state_dir, replace(record, path=disk.path), base)
        return await self._in_pool(disk, state_dir, record, base)

    async def _base(self, os_image: str) -> BaseImage | None:
        if not os_image:
            return None
        base = await self._images.base(os_image)
        if base is None:
            problem = f"image {os_image} is not on this node"
            raise VmError(FailureReason.IMAGE_NOT_FOUND, problem)
        return base

    async def _at_path(
        self, disk: Disk, state_dir: VmStateDir, record: DiskRecord, base: BaseImage | None
    ) -> DiskPart:
        form = disk.format or QCOW2
        if not await self._files.exists(disk.path):
            size = _size_of(disk, base)
            await self._record(state_dir, record)
            await self._files.create(disk, form, size, base)
        elif form == QCOW2:
            await self._files.check_references(disk.device, disk.path)
        if disk.size_gb and any(
            known.path == disk.path for known in await self.recorded(state_dir)
        ):
            capacity = await self._files.capacity(disk, form)
            if capacity != disk.size_gb * GIB:
                _refuse_smaller(disk, capacity)
                await self._files.grow(disk, form)
        kind, source = await self._files.source_of(disk)
        return DiskPart(disk.device, form, source, kind)

    async def _in_pool(
        self, disk: Disk, state_dir: VmStateDir, record: DiskRecord, base: BaseImage | None
    ) -> DiskPart:
        before = await self.recorded(state_dir)
        pool, form = self._pool_of(disk, before), disk.format or "qcow2"
        volume = f"{state_dir.workload_id}-{disk.device}.{form}"
        known = any((one.pool, one.volume) == (pool, volume) for one in before)
        if pool == self._pool.name:
            await self._libvirt.call(self._pool.ensure)
        found = await self._libvirt.call(partial(pools.find, pool=pool, volume=volume))
        if found is None:
            size = _size_of(disk, base)
            await self._record(state_dir, replace(record, pool=pool, volume=volume))
            xml = pools.volume_xml(volume, form, size, base)
            found = await self._libvirt.call(
                partial(pools.create, pool=pool, xml=xml), deadline=MAKE_SECONDS
            )
            await self._files.record_created(found.source.get("file", ""))
        elif not known:
            problem = f"volume {volume} already exists in pool {pool} and was not created by Persys"
            raise VmError(FailureReason.STORAGE_ERROR, problem, code=NAME_TAKEN)
        elif disk.size_gb and disk.size_gb * GIB != found.capacity:
            _refuse_smaller(disk, found.capacity)
            size = disk.size_gb * GIB
            await self._libvirt.call(
                partial(pools.grow, pool=pool, volume=volume, size=size),
                deadline=MAKE_SECONDS,
            )
        return DiskPart(disk.device, form, found.source, found.kind)


def _check(disk: Disk) -> None:
    cdrom = disk.type == "cdrom"
    bus = bus_of(disk.device, cdrom=cdrom)
    if bus is None or (cdrom and bus == "virtio"):
        expected = "sda or hda" if cdrom else "vda, sda or hda"
        kind = disk.type or "disk"
        problem = f"invalid device {disk.device!r} of a {kind}: expected for example {expected}"
        raise VmError(FailureReason.INVALID_SPEC, problem)
    if (cdrom or disk.format == "iso") and not disk.path:
        problem = f"disk {disk.device} is read-only and has no path: set path"
        raise VmError(FailureReason.INVALID_SPEC, problem)


def _check_same(disk: Disk, known: DiskRecord, os_image: str, pool: str) -> None:
    """A disk keeps its data, so neither its image nor its location can change."""
    if known.os_image != os_image and not disk.path:
        problem = (
            f"disk {disk.device} was created from {known.os_image or 'no image'} and keeps its data; "
            f"a VM from {os_image or 'no image'} needs another workload"
        )
        raise VmError(FailureReason.INVALID_SPEC, problem)
    if (known.path, known.pool) != (disk.path, "" if disk.path else pool):
        where = known.path or f"pool {known.pool}"
        problem = f"disk {disk.device} is in {where} and keeps its data; it cannot be moved"
        raise VmError(FailureReason.INVALID_SPEC, problem)


def _image_of(disk: Disk, spec: VMSpec) -> str:
    """The OS image if this is the first disk, otherwise ""."""
    first = next((one for one in spec.disks if one.type != "cdrom"), None)
    return spec.os_image if first is not None and disk.device == first.device else ""


def _boot_order(spec: VMSpec) -> dict[str, int]:
    """Disks with `boot` first, then other disks, then cdroms."""
    ranked = sorted(spec.disks, key=lambda disk: (not disk.boot, disk.type == "cdrom"))
    return {disk.device: rank for rank, disk in enumerate(ranked, start=1)}


def _size_of(disk: Disk, base: BaseImage | None) -> int:
    size = disk.size_gb * GIB
    if base is None:
        if not size:
            problem = f"disk {disk.device} does not exist and has no size: set size_gb"
            raise VmError(FailureReason.INVALID_SPEC, problem)
        return size
    if disk.format == "raw":
        problem = f"invalid format 'raw' of disk {disk.device}, which uses an image: expected qcow2"
        raise VmError(FailureReason.INVALID_SPEC, problem)
    if size and size < base.virtual_size_bytes:
        problem = f"disk {disk.device} has {disk.size_gb} GB; its image needs {base.virtual_size_bytes} bytes"
        raise VmError(FailureReason.INVALID_SPEC, problem)
    return size or base.virtual_size_bytes


def _refuse_smaller(disk: Disk, capacity: int) -> None:
    if disk.size_gb * GIB < capacity:
        problem = f"disk {disk.device} has {capacity} bytes and cannot shrink to {disk.size_gb} GB"
        raise VmError(FailureReason.INVALID_SPEC, problem)


class DiskInventory:
    """Implements agent.ports.Disks."""

    def __init__(
        self, libvirt: Libvirt, disks: VmDisks, owner: OwnerLabels, paths: PathCalls, root: Path
    ) -> None:
        self._libvirt = libvirt
        self._paths = paths
        self._disks = disks
        self._owner = owner
        self._root = root

    async def inventory(self) -> list[VolumeView]:
        try:
            recorded = await self._paths.run(self._root, self._all_recorded)
        except OSError as err:
            raise UnavailableError(f"cannot read the disks of VMs: {err}") from err
        if not recorded:
            return []
        try:
            return await self._libvirt.call(partial(self._measure, recorded=recorded))
        except LibvirtError as err:
            raise power.unavailable(err) from err

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        state_dir = VmStateDir(self._root, workload_id)
        try:
            recorded = await self._disks.recorded(state_dir)
            disk = next((one for one in recorded if one.name == name), None)
            if disk is None:
                raise NotFoundError("volume", f"{workload_id}/{name}")
            await self._disks.remove_one(state_dir, disk)
            if len(recorded) == 1:
                await self._paths.run(
                    state_dir.root, state_dir.discard, deadline_seconds=LONG_SECONDS
                )
        except (LibvirtError, VmError, OSError) as err:
            raise RefusedError(f"cannot remove volume {name}: {err}") from err

    def _all_recorded(self) -> list[tuple[WorkloadId, DiskRecord]]:
        return [
            (state_dir.workload_id, disk)
            for state_dir in state_dirs(self._root)
            for disk in state_dir.read_disks()
        ]

    def _measure(
        self, connection: Any, recorded: list[tuple[WorkloadId, DiskRecord]]
    ) -> list[VolumeView]:
        domains = {domain.UUIDString() for domain in connection.listAllDomains()}
        seen = []
        for workload_id, disk in recorded:
            size = Measured(disk.path) if disk.path else measure(connection, disk)
            here = domain_uuid(self._owner, workload_id) in domains
            seen.append(
                VolumeView(
                    workload_id,
                    disk.name,
                    DISK,
                    disk.pool,
                    VolumeState.ATTACHED if here else VolumeState.RETAINED,
                    retain=False,
                    path=size.path,
                    size_bytes=size.capacity,
                    used_bytes=size.used,
                    created_at=disk.made_at,
                )
            )
        return seen
