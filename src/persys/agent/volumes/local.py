"""Volumes on the local file system: a directory, or with a size a file that contains a file system.

    <root>/<workload>/<name>             the directory, or the mount point of the file system
    <root>/.files/<workload>/<name>.ext4 the file system of a container's volume
    <root>/.disks/<workload>/<name>.ext4 the same for a VM, which mounts it itself

A container gets `data` inside the mount, which does not exist while nothing is mounted. If Docker starts
before the agent, it cannot start the container on the unmounted directory and fill the node's disk.
"""

import ctypes
import errno
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from persys.agent.volumes import filesystems
from persys.agent.volumes.driver import Measure
from persys.agent.volumes.filesystems import Mounts, mounted_at
from persys.agent.volumes.programs import Programs, VolumeError
from persys.core.agent.storage import DriverCapabilities
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.model.ids import WorkloadId
from persys.model.node import GIB, Volume
from persys.model.spec import LOCAL_DRIVER

ENTRIES_MAX = 50_000
_LIBC = ctypes.CDLL(None, use_errno=True)
_SPARSE_ONLY = (errno.EOPNOTSUPP, errno.ENOSYS)


DRIVER = LOCAL_DRIVER
_TOOLS = ("mount", "umount", "losetup", "blkid")
_DATA = "data"
_UNFINISHED = ".new"


class LocalDriver:
    abilities = DriverCapabilities(sizes=True, disks=True)
    pool = DRIVER

    def __init__(self, root: Path, programs: Programs, paths: PathCalls) -> None:
        self.root = root.resolve()  # as in the mount table
        self._programs = programs
        self._paths = paths
        self._mounts = Mounts(programs, paths)

    def unsupported(self, fs_type: str) -> str:
        if not fs_type:
            return ""
        if missing := self._programs.missing(*_TOOLS):
            return f"a volume with a size needs {' and '.join(missing)}: install them on this node"
        return filesystems.format_problem(fs_type, self._programs)

    async def find(self, workload_id: WorkloadId, name: str) -> Volume | None:
        place = self.root / workload_id
        volumes = await self._paths.run(place, partial(self._find_of, workload_id))
        return next((found for found in volumes if found.name == name), None)

    async def find_all(self) -> list[Volume]:
        return await self._paths.run(self.root, self._find_all)

    def _find_all(self) -> list[Volume]:
        places = (self.root, self.root / ".files", self.root / ".disks")
        owners = {found.name for place in places for found in _entries(place)}
        return [
            volume
            for owner in sorted(owners)
            if not owner.startswith(".")
            for volume in self._find_of(WorkloadId(owner))
        ]

    def path(self, volume: Volume) -> Path:
        at = self._at(volume)
        return at / _DATA if volume.size_gb else at

    def disk(self, volume: Volume) -> Path:
        return self._file(volume)

    async def attach(self, wanted: Volume, known: Volume | None) -> None:
        try:
            if wanted.size_gb:
                await self._attach_file(wanted, known)
            else:
                at = self._at(wanted)
                await self._paths.run(at, partial(self._make_directory, wanted, known))
        except OSError as err:
            raise VolumeError(f"{err.filename}: {err.strerror}") from err

    async def detach(self, volume: Volume) -> None:
        if volume.size_gb:
            await self._mounts.unmount(self._at(volume))
            with suppress(VolumeError):  # it is unmounted; only writes to the file need more
                await self._mounts.wait_until_released(self._file(volume))

    async def delete(self, volume: Volume) -> None:
        try:
            delete = partial(self._delete, volume)
            await self._paths.run(self._at(volume), delete, deadline_seconds=LONG_SECONDS)
        except OSError as err:
            raise VolumeError(f"{err.filename}: {err.strerror}") from err

    async def measure(self, volume: Volume) -> Measure:
        at = self._at(volume)
        if not volume.size_gb:
            return Measure(0, await self._paths.run(at, partial(disk_usage, at)))
        used = 0
        if not volume.as_disk and await self._mounts.at(at) is not None:
            found = await self._paths.run(at, partial(os.statvfs, at))
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
        return Measure(volume.size_gb * GIB, used)

    async def _attach_file(self, wanted: Volume, known: Volume | None) -> None:
        file, size = self._file(wanted), wanted.size_gb * GIB
        if not await self._paths.run(file, file.exists):
            if known is not None:
                raise _lost(wanted, file)
            await self._make_file(file, wanted)
        grows = known is not None and wanted.size_gb > known.size_gb
        if grows:
            await self._paths.run(file, partial(extend, file, size), deadline_seconds=LONG_SECONDS)
        if not wanted.as_disk:
            await self._mount(file, wanted)
            if grows:
                await self._grow(file, wanted)
            data = self._at(wanted) / _DATA
            await self._paths.run(data, partial(data.mkdir, exist_ok=True))
        elif grows and await filesystems.filesystem_on(file, self._programs) == wanted.fs_type:
            # If the VM changed the file system, the VM must grow it.
            await self._grow_disk(file, wanted)

    async def _make_file(self, file: Path, wanted: Volume) -> None:
        """Create it under a temporary name, so that a file with the final name always has a file system."""
        unfinished = file.with_name(f"{file.name}{_UNFINISHED}")
        reserve = partial(_reserve, unfinished, wanted.size_gb * GIB)
        try:
            await self._paths.run(file, reserve, deadline_seconds=LONG_SECONDS)
            await filesystems.create(wanted.fs_type, unfinished, self._programs)
            await self._paths.run(file, partial(unfinished.rename, file))
        except BaseException:
            with suppress(OSError, PathTimeoutError):
                await self._paths.run(file, partial(unfinished.unlink, missing_ok=True))
            raise

    async def _mount(self, file: Path, wanted: Volume) -> str:
        """Mount the file and return its loop device."""
        at = self._at(wanted)
        if await self._mounts.at(at) is None:
            # A VM's disk is mounted only to grow it; its content is untrusted.
            options = "loop,noexec" if wanted.as_disk else "loop"
            await self._mounts.mount(str(file), at, wanted.fs_type, options)
        mounted = await self._mounts.at(at)
        if mounted is None or await self._mounts.backing_file_of(mounted.source) != str(file):
            source = mounted.source if mounted is not None else "nothing"
            raise VolumeError(f"{at}: {source} is mounted there, not {file}", code="MountFailed")
        return mounted.source

    async def _grow(self, file: Path, wanted: Volume) -> None:
        """Grow the file system. It is not in use during preparation, so it may be unmounted if necessary."""
        at = self._at(wanted)
        device = await self._mount(file, wanted)
        await self._programs.run("losetup", "-c", device)
        try:
            await filesystems.grow(wanted.fs_type, device, at, self._programs)
        except VolumeError:  # online resize needs CAP_SYS_RESOURCE
            if not filesystems.grows_unmounted(wanted.fs_type):
                raise
            await self._mounts.unmount(at)
            await self._mounts.wait_until_released(file)
            await filesystems.grow_unmounted(wanted.fs_type, str(file), self._programs)
            await self._mount(file, wanted)

    async def _grow_disk(self, file: Path, wanted: Volume) -> None:
        """Mount a VM's disk to grow it: the VM is off while its volumes are prepared."""
        try:
            await self._grow(file, wanted)
        finally:
            at = self._at(wanted)
            await self._mounts.unmount(at)
            await self._mounts.wait_until_released(file)
            await self._paths.run(at, partial(_remove_empty, at, self.root))

    def _make_directory(self, wanted: Volume, known: Volume | None) -> None:
        at = self._at(wanted)
        if known is not None and not at.is_dir():
            raise _lost(wanted, at)
        at.mkdir(parents=True, exist_ok=True)

    def _delete(self, volume: Volume) -> None:
        at = self._at(volume)
        if (mounted := mounted_at(at)) is not None:
            raise VolumeError(f"{at}: {mounted.source} is mounted there", code="VolumeBusy")
        if volume.size_gb:
            file = self._file(volume)
            file.unlink(missing_ok=True)
            _remove_empty(file.parent, self.root)
        else:
            self._delete_tree(at, self.root / ".doomed" / f"{volume.workload_id}.{volume.name}")
        _remove_empty(at, self.root)

    def _delete_tree(self, at: Path, trash: Path) -> None:
        """Rename the tree before deleting it, so that a new volume of that name is not affected."""
        if at.exists():
            if trash.exists():
                shutil.rmtree(trash)
            trash.parent.mkdir(exist_ok=True)
            at.rename(trash)
        if trash.exists():
            shutil.rmtree(trash)
        _remove_empty(trash.parent, self.root)

    def _find_of(self, workload_id: WorkloadId) -> list[Volume]:
        found: dict[str, Volume] = {}
        for place, as_disk in ((".files", False), (".disks", True)):
            for file in _entries(self.root / place / workload_id):
                name, _, fs_type = file.name.partition(".")
                if fs_type in filesystems.FORMATS:
                    size_gb = -(-file.stat().st_size // GIB)
                    found[name] = _found(workload_id, name, file, size_gb, fs_type, as_disk=as_disk)
        for directory in _entries(self.root / workload_id):
            if directory.name not in found and directory.is_dir():
                found[directory.name] = _found(workload_id, directory.name, directory)
        return list(found.values())

    def _at(self, volume: Volume) -> Path:
        return self.root / volume.workload_id / volume.name

    def _file(self, volume: Volume) -> Path:
        place = ".disks" if volume.as_disk else ".files"
        return self.root / place / volume.workload_id / f"{volume.name}.{volume.fs_type}"


def _found(
    workload_id: WorkloadId,
    name: str,
    path: Path,
    size_gb: int = 0,
    fs_type: str = "",
    *,
    as_disk: bool = False,
) -> Volume:
    """A volume without a registry entry; it is retained by default."""
    made_at = datetime.fromtimestamp(path.stat().st_ctime, tz=UTC)
    return Volume(
        workload_id,
        name,
        DRIVER,
        made_at,
        size_gb=size_gb,
        fs_type=fs_type,
        retain=True,
        as_disk=as_disk,
    )


def _reserve(unfinished: Path, size_bytes: int) -> None:
    """Create a file with all blocks reserved."""
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.unlink(missing_ok=True)
    extend(unfinished, size_bytes)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_empty(directory: Path, root: Path) -> None:
    while directory != root:
        if directory.is_dir():
            try:
                directory.rmdir()
            except OSError as err:
                if err.errno == errno.ENOTEMPTY:
                    return  # it is in use by other volumes
                raise
        directory = directory.parent


def _lost(volume: Volume, path: Path) -> VolumeError:
    text = (
        f"volume {volume.name} is lost: {path} does not exist; restore it, or delete the workload"
    )
    return VolumeError(text, code="VolumeLost")


def extend(path: Path, size_bytes: int) -> None:
    """Grow the file to this size, with all blocks reserved if the file system supports it. Never shrinks.

    Raises VolumeError if there is not enough space; the file keeps its size then.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(descriptor)
        pool = os.fstatvfs(descriptor)
        if size_bytes - found.st_blocks * 512 > pool.f_bavail * pool.f_frsize:
            raise _no_space(path, size_bytes)
        code = _allocate(descriptor, size_bytes)
        if code in _SPARSE_ONLY:
            os.truncate(descriptor, max(size_bytes, found.st_size))
        elif code:
            os.truncate(descriptor, found.st_size)
            if code != errno.ENOSPC:
                raise OSError(code, os.strerror(code), str(path))
            raise _no_space(path, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def disk_usage(directory: Path) -> int:
    """Bytes on disk; 0 if there are too many files to count."""
    used = count = 0
    for parent, _, names in os.walk(directory):
        count += len(names)
        if count > ENTRIES_MAX:
            return 0
        for name in names:
            try:
                used += (Path(parent) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue  # it was removed in the meantime
    return used


def _allocate(descriptor: int, size_bytes: int) -> int:
    """Not posix_fallocate, which writes zeros if the file system does not support it."""
    done = _LIBC.fallocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes))
    return ctypes.get_errno() if done else 0


def _no_space(path: Path, size_bytes: int) -> VolumeError:
    text = f"not enough space for {size_bytes // GIB} GB at {path.parent}"
    return VolumeError(text, code="PoolFull")
