"""Volumes on an NFS server: its export is mounted once, and each volume is a directory of it.

    <stage>/<cluster>/<workload>/<name>       for one workload
    <stage>/<cluster>/.shared/<name>/data     for all that say ReadWriteMany
    <stage>/<cluster>/.shared/<name>/holders  a file for each of them, whichever node it is on

A server that does not answer makes whoever touches its files wait without end: so they are only touched by
programs that can be killed. The export is unmounted with the last volume that this node needs.
"""

import asyncio
from pathlib import Path

from msgspec import Struct

from persys.agent.volumes.book import Book
from persys.agent.volumes.driver import Measure
from persys.agent.volumes.mounts import Mounts
from persys.agent.volumes.tools import LONG_SECONDS, Tools, VolumeError
from persys.core.volumes import Abilities
from persys.infra.aio.path_calls import PathCalls
from persys.model.ids import WorkloadId
from persys.model.volume import Volume

DRIVER = "nfs"
TOOLS = ("mount", "umount", "mount.nfs")


class Export(Struct, frozen=True):
    server: str
    path: str
    options: str
    stage: Path

    @property
    def source(self) -> str:
        return f"{self.server}:{self.path}"


class NfsDriver:
    can = Abilities(shares=True)

    def __init__(
        self, export: Export, cluster_id: str, book: Book, tools: Tools, paths: PathCalls
    ) -> None:
        self._export = export
        self._stage = export.stage.resolve()
        self._base = self._stage / cluster_id
        self._book = book
        self._tools = tools
        self._mounts = Mounts(tools, paths)
        self._turn = asyncio.Lock()  # of mounting and unmounting

    @property
    def pool(self) -> str:
        return self._export.source

    def lacks(self, fs_type: str) -> str:
        return "a share has the file system of its server" if fs_type else ""

    async def find(self, _workload_id: WorkloadId, _name: str) -> Volume | None:
        """The data of a workload that was on another node is there when the directory is made again."""
        return None

    async def find_all(self) -> list[Volume]:
        return []

    def path(self, volume: Volume) -> Path:
        return self._root(volume) / "data" if volume.shared else self._root(volume)

    def disk(self, volume: Volume) -> Path:
        raise AssertionError(f"{volume.driver} gives no disks, and none is asked of it")

    async def attach(self, wanted: Volume, known: Volume | None) -> None:
        async with self._turn:
            await self._mount()
        if known is not None and not await self._is_there(self.path(wanted)):
            text = f"volume {wanted.name} was at {self.pool}, and is there no more"
            raise VolumeError(text, code="VolumeLost")
        if not wanted.shared:
            await self._run("mkdir", "-p", str(self.path(wanted)))
            return
        holders = self._root(wanted) / "holders"
        await self._run("mkdir", "-p", str(holders), str(self.path(wanted)))
        await self._run("touch", str(holders / wanted.workload_id))

    async def detach(self, volume: Volume) -> None:
        """Called while the book still has it as attached."""
        async with self._turn:
            others = [each for each in self._book.attached(DRIVER) if not _same(each, volume)]
            if not others:
                await self._mounts.unmount(self._stage)

    async def delete(self, volume: Volume) -> None:
        async with self._turn:
            await self._mount()
            try:
                await (self._leave(volume) if volume.shared else self._delete(self._root(volume)))
            finally:
                if not self._book.attached(DRIVER):
                    await self._mounts.unmount(self._stage)

    async def measure(self, _volume: Volume) -> Measure:
        return Measure(0, 0)  # counting files of a server may take for ever

    async def _mount(self) -> None:
        mounted = await self._mounts.at(self._stage)
        if mounted is None:
            await self._mounts.mount(self.pool, self._stage, "nfs", self._export.options)
        elif mounted.source.rstrip("/") != self.pool.rstrip("/"):
            text = f"{self._stage}: {mounted.source} is mounted there, not {self.pool}"
            raise VolumeError(text, code="MountFailed")

    async def _leave(self, volume: Volume) -> None:
        """Whoever goes last takes the data along. One that comes at the same moment gets it back."""
        root = self._root(volume)
        holders = root / "holders"
        await self._run("mkdir", "-p", str(holders))
        await self._run("rm", "-f", str(holders / volume.workload_id))
        await self._run("rmdir", "--ignore-fail-on-non-empty", str(holders))
        if await self._is_there(holders):
            return
        doomed = self._base / f".doomed-{volume.workload_id}-{volume.name}"
        await self._delete(doomed)
        await self._run("mv", "-T", str(root), str(doomed))
        if await self._is_there(doomed / "holders"):
            await self._run("mv", "-T", str(doomed), str(root))
            return
        await self._delete(doomed)

    async def _delete(self, directory: Path) -> None:
        await self._tools.run(
            "rm", "-rf", "--one-file-system", str(directory), deadline=LONG_SECONDS
        )

    async def _is_there(self, directory: Path) -> bool:
        return (await self._tools.run("test", "-d", str(directory), ok=(0, 1))).ok

    async def _run(self, *command: str) -> None:
        await self._tools.run(*command)

    def _root(self, volume: Volume) -> Path:
        if volume.shared:
            return self._base / ".shared" / volume.name
        return self._base / volume.workload_id / volume.name


def _same(one: Volume, other: Volume) -> bool:
    return (one.workload_id, one.name) == (other.workload_id, other.name)
