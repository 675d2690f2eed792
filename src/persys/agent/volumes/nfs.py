"""Volumes on an NFS server: the export is mounted once, and each volume is a directory of it.

    <stage>/<cluster>/<workload>/<name>       for one workload
    <stage>/<cluster>/.shared/<name>/data     for all workloads with ReadWriteMany
    <stage>/<cluster>/.shared/<name>/holders  one file per workload, on any node

Access to files of a server that does not respond blocks forever, so files are accessed only by programs that
can be killed. The export is unmounted with the last volume of this node.

The mount lock is held only while the export is mounted or unmounted, not while files are accessed: a long
removal does not delay other workloads. A volume counts as in use from before the mount, so that the export is
not unmounted in between. Changes of one directory are serial.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from persys.agent.volumes.driver import Measure
from persys.agent.volumes.filesystems import MOUNT_SECONDS, Mounts
from persys.agent.volumes.programs import LONG_SECONDS, Programs, VolumeError
from persys.agent.volumes.registry import VolumeRegistry
from persys.core.agent.storage import DriverCapabilities
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId
from persys.model.node import Volume

DRIVER = "nfs"
TOOLS = ("mount", "umount", "mount.nfs")
_Key = tuple[WorkloadId, str]


class Export(Struct, frozen=True):
    server: str
    path: str
    options: str
    stage: Path

    @property
    def source(self) -> str:
        return f"{self.server}:{self.path}"


class NfsDriver:
    abilities = DriverCapabilities(shares=True)

    def __init__(
        self,
        export: Export,
        cluster_id: str,
        registry: VolumeRegistry,
        programs: Programs,
        paths: PathCalls,
    ) -> None:
        self._export = export
        self._stage = export.stage.resolve()
        self._base = self._stage / cluster_id
        self._registry = registry
        self._programs = programs
        self._mounts = Mounts(programs, paths)
        self._mount_lock = asyncio.Lock()
        self._directories: KeyedLock[Path] = KeyedLock()
        self._in_use: set[_Key] = set()  # attached by this process, or in progress

    @property
    def pool(self) -> str:
        return self._export.source

    def unsupported(self, fs_type: str) -> str:
        return "is not supported by nfs: the server determines the file system" if fs_type else ""

    async def find(self, _workload_id: WorkloadId, _name: str) -> Volume | None:
        """Data from another node is found when the directory is created again."""
        return None

    async def find_all(self) -> list[Volume]:
        return []

    def path(self, volume: Volume) -> Path:
        return self._root(volume) / "data" if volume.shared else self._root(volume)

    def disk(self, volume: Volume) -> Path:
        raise AssertionError(f"driver {volume.driver} does not support disks")

    async def attach(self, wanted: Volume, known: Volume | None) -> None:
        self._in_use.add(_key(wanted))
        try:
            await self._mount()
            async with self._directories.hold(self._root(wanted)):
                await self._make(wanted, known)
        except BaseException:
            self._in_use.discard(_key(wanted))
            raise

    async def detach(self, volume: Volume) -> None:
        """Called while the registry still lists the volume as attached."""
        self._in_use.discard(_key(volume))
        await self._unmount_unless_used(besides=_key(volume))

    async def delete(self, volume: Volume) -> None:
        self._in_use.add(_key(volume))
        try:
            await self._mount()
            async with self._directories.hold(self._root(volume)):
                await (
                    self._remove_holder(volume)
                    if volume.shared
                    else self._delete(self._root(volume))
                )
        finally:
            self._in_use.discard(_key(volume))
            await self._unmount_unless_used()

    async def measure(self, _volume: Volume) -> Measure:
        return Measure(0, 0)  # counting files on a server may take too long

    async def _mount(self) -> None:
        async with self._mounting():
            mounted = await self._mounts.at(self._stage)
            if mounted is None:
                await self._mounts.mount(self.pool, self._stage, "nfs", self._export.options)
            elif mounted.source.rstrip("/") != self.pool.rstrip("/"):
                text = f"{self._stage}: {mounted.source} is mounted there, not {self.pool}"
                raise VolumeError(text, code="MountFailed")

    async def _unmount_unless_used(self, *, besides: _Key | None = None) -> None:
        async with self._mounting():
            attached = {_key(each) for each in self._registry.attached(DRIVER)}
            if not (attached | self._in_use) - {besides}:
                await self._mounts.unmount(self._stage)

    @asynccontextmanager
    async def _mounting(self) -> AsyncIterator[None]:
        """Hold the mount lock. Raises VolumeError if others hold it for too long."""
        try:
            async with asyncio.timeout(MOUNT_SECONDS):
                await self._mount_lock.acquire()
        except TimeoutError as err:
            text = f"{self.pool} was not mounted or unmounted within {MOUNT_SECONDS:g} s"
            raise VolumeError(text, code="MountFailed") from err
        try:
            yield
        finally:
            self._mount_lock.release()

    async def _make(self, wanted: Volume, known: Volume | None) -> None:
        if known is not None and not await self._exists(self.path(wanted)):
            text = f"volume {wanted.name} is lost: it does not exist at {self.pool} any more"
            raise VolumeError(text, code="VolumeLost")
        if not wanted.shared:
            await self._run("mkdir", "-p", str(self.path(wanted)))
            return
        holders = self._root(wanted) / "holders"
        await self._run("mkdir", "-p", str(holders), str(self.path(wanted)))
        await self._run("touch", str(holders / wanted.workload_id))

    async def _remove_holder(self, volume: Volume) -> None:
        """Remove a holder; the last one deletes the data. A concurrent new holder gets the data back."""
        root = self._root(volume)
        holders = root / "holders"
        await self._run("mkdir", "-p", str(holders))
        await self._run("rm", "-f", str(holders / volume.workload_id))
        await self._run("rmdir", "--ignore-fail-on-non-empty", str(holders))
        if await self._exists(holders):
            return
        trash = self._base / f".doomed-{volume.workload_id}-{volume.name}"
        await self._delete(trash)
        await self._run("mv", "-T", str(root), str(trash))
        if await self._exists(trash / "holders"):
            await self._run("mv", "-T", str(trash), str(root))
            return
        await self._delete(trash)

    async def _delete(self, directory: Path) -> None:
        await self._programs.run(
            "rm", "-rf", "--one-file-system", str(directory), deadline=LONG_SECONDS
        )

    async def _exists(self, directory: Path) -> bool:
        return (await self._programs.run("test", "-d", str(directory), ok=(0, 1))).ok

    async def _run(self, *command: str) -> None:
        await self._programs.run(*command)

    def _root(self, volume: Volume) -> Path:
        if volume.shared:
            return self._base / ".shared" / volume.name
        return self._base / volume.workload_id / volume.name


def _key(volume: Volume) -> _Key:
    return (volume.workload_id, volume.name)
