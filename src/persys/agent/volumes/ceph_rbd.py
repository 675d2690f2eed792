"""Volumes as Ceph RBD images, mapped by the kernel and mounted, or attached to a VM as disks.

    <pool>/<cluster>.<workload>.<name>   the image
    <stage>/<workload>/<name>            its mount point; containers get `data` inside

Only the list of the pool shows whether an image exists: rbd exits with the same code for a missing image and
for a cluster that does not respond. An image is mapped exclusively by this node.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from persys.agent.volumes import filesystems
from persys.agent.volumes.driver import Measure
from persys.agent.volumes.filesystems import Mounts
from persys.agent.volumes.programs import BRIEF_SECONDS, LONG_SECONDS, Programs, VolumeError
from persys.core.agent.storage import DriverCapabilities
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId
from persys.model.node import GIB, Volume

DRIVER = "ceph-rbd"
TOOLS = ("rbd", "mount", "umount", "blkid")
_DATA = "data"


class Ceph(Struct, frozen=True):
    cluster: str
    pool: str
    user: str
    keyring: str
    stage: Path


class CephDriver:
    abilities = DriverCapabilities(sizes=True, needs_size=True, disks=True)

    def __init__(self, ceph: Ceph, cluster_id: str, programs: Programs, paths: PathCalls) -> None:
        self._ceph = ceph
        self._stage = ceph.stage.resolve()
        self._prefix = quote(cluster_id, safe="").replace(".", "%2E")
        self._programs = programs
        self._mounts = Mounts(programs, paths)
        self._paths = paths

    @property
    def pool(self) -> str:
        return self._ceph.pool

    def unsupported(self, fs_type: str) -> str:
        return filesystems.format_problem(fs_type, self._programs) if fs_type else ""

    async def find(self, _workload_id: WorkloadId, _name: str) -> Volume | None:
        """An image of another node is found when it is attached."""
        return None

    async def find_all(self) -> list[Volume]:
        return []

    def path(self, volume: Volume) -> Path:
        return self._at(volume) / _DATA

    def disk(self, volume: Volume) -> Path:
        return Path("/dev/rbd") / self._image(volume)

    async def attach(self, wanted: Volume, known: Volume | None) -> None:
        images = await self._rbd_json("ls", self._ceph.pool)
        if self._name(wanted) not in images:
            if known is not None:
                text = f"volume {wanted.name} is lost: image {self._image(wanted)} does not exist any more"
                raise VolumeError(text, code="VolumeLost")
            await self._rbd("create", "--size", f"{wanted.size_gb}G", self._image(wanted))
        has_bytes = await self._size_of(wanted)
        if grows := has_bytes < wanted.size_gb * GIB:
            await self._rbd("resize", "--size", f"{wanted.size_gb}G", self._image(wanted))
        device = await self._map(wanted)
        if not await filesystems.filesystem_on(Path(device), self._programs):
            if known is not None:
                text = f"volume {wanted.name} is lost: {self._image(wanted)} has no file system any more"
                raise VolumeError(text, code="VolumeLost")
            await filesystems.create(wanted.fs_type, Path(device), self._programs)
        if wanted.as_disk:
            return
        at = self._at(wanted)
        if await self._mounts.at(at) is None:
            await self._mounts.mount(device, at, wanted.fs_type)
        if grows or (known is not None and wanted.size_gb > known.size_gb):
            await self._grow(device, at, wanted)
        try:
            await self._paths.run(at, partial((at / _DATA).mkdir, exist_ok=True))
        except OSError as err:
            raise VolumeError(f"{at / _DATA}: {err.strerror}") from err

    async def _grow(self, device: str, at: Path, wanted: Volume) -> None:
        try:
            await filesystems.grow(wanted.fs_type, device, at, self._programs)
        except VolumeError:  # online resize needs CAP_SYS_RESOURCE
            if not filesystems.grows_unmounted(wanted.fs_type):
                raise
            await self._mounts.unmount(at)
            await filesystems.grow_unmounted(wanted.fs_type, device, self._programs)
            await self._mounts.mount(device, at, wanted.fs_type)

    async def detach(self, volume: Volume) -> None:
        await self._mounts.unmount(self._at(volume))
        if device := await self._mapped(volume):
            await self._rbd("unmap", device)

    async def delete(self, volume: Volume) -> None:
        if self._name(volume) in await self._rbd_json("ls", self._ceph.pool):
            await self._rbd("rm", "--no-progress", self._image(volume), deadline=LONG_SECONDS)

    async def measure(self, volume: Volume) -> Measure:
        return Measure(volume.size_gb * GIB, 0)

    async def _map(self, volume: Volume) -> str:
        if device := await self._mapped(volume):
            return device
        ran = await self._programs.run(
            *self._command("map", "--exclusive", self._image(volume)), deadline=BRIEF_SECONDS
        )
        return ran.out.strip()

    async def _mapped(self, volume: Volume) -> str:
        """Its device on this node, or "" if it is not mapped."""
        listed = await self._rbd_json("device", "list")
        try:
            for found in listed:
                if (found["pool"], found["name"]) == (self._ceph.pool, self._name(volume)):
                    return str(found["device"])
        except (KeyError, TypeError) as err:
            raise _unexpected_output("device") from err
        return ""

    async def _size_of(self, volume: Volume) -> int:
        found = await self._rbd_json("info", self._image(volume))
        try:
            return int(found["size"])
        except (KeyError, TypeError, ValueError) as err:
            raise _unexpected_output("info") from err

    async def _rbd(self, *arguments: str, deadline: float = BRIEF_SECONDS) -> None:
        await self._programs.run(*self._command(*arguments), deadline=deadline)

    async def _rbd_json(self, *arguments: str) -> Any:
        ran = await self._programs.run(*self._command(*arguments, "--format", "json"))
        try:
            return json.loads(ran.out)
        except ValueError as err:
            raise _unexpected_output(arguments[0]) from err

    def _command(self, *arguments: str) -> tuple[str, ...]:
        who: Mapping[str, str] = {
            "--cluster": self._ceph.cluster,
            "--id": self._ceph.user,
            "--keyring": self._ceph.keyring,
        }
        return ("rbd", *(word for pair in who.items() if pair[1] for word in pair), *arguments)

    def _name(self, volume: Volume) -> str:
        return f"{self._prefix}.{volume.workload_id}.{volume.name}"

    def _image(self, volume: Volume) -> str:
        return f"{self._ceph.pool}/{self._name(volume)}"

    def _at(self, volume: Volume) -> Path:
        return self._stage / volume.workload_id / volume.name


def _unexpected_output(verb: str) -> VolumeError:
    return VolumeError(f"unexpected output of rbd {verb}", code="ToolFailed")
