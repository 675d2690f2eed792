"""The disks that this agent created for VMs as volumes, including those of deleted VMs."""

from functools import partial
from pathlib import Path
from typing import Any

from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm import power
from persys.agent.runtimes.vm.domain_xml import domain_uuid
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, VmError
from persys.agent.runtimes.vm.state_dir import DiskRecord, VmStateDir, state_dirs
from persys.agent.runtimes.vm.storage.disks import VmDisks
from persys.agent.runtimes.vm.storage.pools import Measured, measure
from persys.errors import NotFoundError, RefusedError, UnavailableError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls
from persys.model.ids import WorkloadId
from persys.model.node import DISK, VolumeState, VolumeView


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
            made = await self._paths.run(self._root, self._made)
        except OSError as err:
            raise UnavailableError(f"cannot read the disks of VMs: {err}") from err
        if not made:
            return []
        try:
            return await self._libvirt.call(partial(self._measure, made=made))
        except LibvirtError as err:
            raise power.unavailable(err) from err

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        state_dir = VmStateDir(self._root, workload_id)
        try:
            made = await self._disks.recorded(state_dir)
            disk = next((one for one in made if one.name == name), None)
            if disk is None:
                raise NotFoundError("volume", f"{workload_id}/{name}")
            await self._disks.remove_one(state_dir, disk)
            if len(made) == 1:
                await self._paths.run(
                    state_dir.root, state_dir.discard, deadline_seconds=LONG_SECONDS
                )
        except (LibvirtError, VmError, OSError) as err:
            raise RefusedError(f"cannot remove volume {name}: {err}") from err

    def _made(self) -> list[tuple[WorkloadId, DiskRecord]]:
        return [
            (state_dir.workload_id, disk)
            for state_dir in state_dirs(self._root)
            for disk in state_dir.read_disks()
        ]

    def _measure(
        self, connection: Any, made: list[tuple[WorkloadId, DiskRecord]]
    ) -> list[VolumeView]:
        domains = {domain.UUIDString() for domain in connection.listAllDomains()}
        seen = []
        for workload_id, disk in made:
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
