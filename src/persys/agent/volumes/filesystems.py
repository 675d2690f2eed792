"""Creates, grows, mounts and unmounts the file systems of volumes.

Mount and unmount check the kernel's mount table first and are idempotent. The exit code of mount(8) gives the
cause of a failure.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from persys.agent.volumes.programs import LONG_SECONDS, Programs, VolumeError, output_of
from persys.infra.aio.path_calls import PathCalls
from persys.infra.mount_table import read_mount_table

MOUNT_SECONDS = 60.0
UNTRUSTED = "nosuid,nodev"
_LOOPS = Path("/sys/block")
_TABLE = "/proc/self/mountinfo"
_LAYERS_MAX = 16  # stacked mounts
_POLLS_MAX = 500
_POLL_SECONDS = 0.02
# Exit codes of mount(8). 32 is any failure of the mount itself, also an NFS server that does not respond.
_FAULTS = {
    1: ("MountNotPermitted", "the agent is not permitted to mount"),
    2: ("MountSystemError", "out of memory or no free loop device"),
    4: ("MountBroken", "internal error of mount"),
    8: ("MountInterrupted", "mount was interrupted"),
    16: ("MountTableBroken", "cannot write the mount table"),
    32: ("MountFailed", "mount failed"),
}
_BUSY = 32


_NOT_FOUND = 2  # exit code of blkid: no known signature
_CORRECTED = 1  # exit code of e2fsck: errors were corrected


class Mounted(NamedTuple):
    source: str
    fs_type: str


def mounted_at(path: Path) -> Mounted | None:
    """The current mount at a path without links. Blocks."""
    found = None
    for entry in read_mount_table():
        if entry.mount_point == str(path):
            found = Mounted(entry.source, entry.fs_type)  # the last entry is on top
    return found


def backing_file(device: str) -> str:
    """The backing file of a loop device, or "". Blocks."""
    try:
        content = (_LOOPS / Path(device).name / "loop/backing_file").read_text()
    except OSError:
        return ""
    return content.rstrip("\n")


def _has_loop_device(file: str) -> bool:
    return any(backing_file(device.name) == file for device in _LOOPS.glob("loop*"))


class Mounts:
    def __init__(self, programs: Programs, paths: PathCalls) -> None:
        self._programs = programs
        self._paths = paths

    async def at(self, path: Path) -> Mounted | None:
        """The current mount at a path without links."""
        return await self._paths.run(_TABLE, partial(mounted_at, path))

    async def backing_file_of(self, device: str) -> str:
        """The backing file of a loop device, or ""."""
        return await self._paths.run(_LOOPS, partial(backing_file, device))

    async def wait_until_released(self, file: Path) -> None:
        """Wait until no loop device uses the file. A device outlives its mount while a process reads it.

        Raises VolumeError if the device is not released in time.
        """
        for _ in range(_POLLS_MAX):
            if not await self._paths.run(_LOOPS, partial(_has_loop_device, str(file))):
                return
            await asyncio.sleep(_POLL_SECONDS)
        raise VolumeError(f"{file} is still in use by a loop device", code="VolumeBusy")

    async def mount(self, source: str, at: Path, fs_type: str, options: str = "") -> None:
        """Mount untrusted content, without devices and set-uid files. Raises VolumeError."""
        await self._paths.run(at, partial(at.mkdir, parents=True, exist_ok=True))
        flags = ",".join(filter(None, (options, UNTRUSTED)))
        command = ("mount", "-t", fs_type, "-o", flags, source, str(at))
        ran = await self._programs.run(*command, deadline=MOUNT_SECONDS, ok=range(256))
        if not ran.ok:
            code, fault = _FAULTS.get(ran.code, _FAULTS[32])
            raise VolumeError(f"cannot mount {source}: {fault}: {output_of(ran)}", code=code)

    async def unmount(self, at: Path) -> None:
        """Raises VolumeError if it is in use or cannot be reached."""
        for _ in range(_LAYERS_MAX):
            if await self.at(at) is None:
                return
            ran = await self._programs.run("umount", str(at), deadline=MOUNT_SECONDS, ok=range(256))
            if not ran.ok:
                code = "VolumeBusy" if ran.code == _BUSY else "UnmountFailed"
                raise VolumeError(f"cannot unmount {at}: {output_of(ran)}", code=code)
        text = f"cannot unmount {at}: still mounted after {_LAYERS_MAX} runs of umount"
        raise VolumeError(text, code="UnmountFailed")


class Format(Struct, frozen=True):
    make: tuple[str, ...]  # before the device
    grow: tuple[str, ...]  # before the device or the mount point
    grows_by_device: bool = False
    check: tuple[str, ...] = ()  # before an unmounted resize; empty if not supported


# Without discard, which would release the blocks that the pool has reserved.
FORMATS = {
    "ext4": Format(
        ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard"),
        ("resize2fs",),
        grows_by_device=True,
        check=("e2fsck", "-f", "-p"),
    ),
    "xfs": Format(("mkfs.xfs", "-q", "-f", "-K"), ("xfs_growfs",)),
    "btrfs": Format(("mkfs.btrfs", "-q", "-f", "-K"), ("btrfs", "filesystem", "resize", "max")),
}


def format_problem(fs_type: str, programs: Programs) -> str:
    """Why this node cannot create such a file system, or ""."""
    if fs_type not in FORMATS:
        return f"invalid file system {fs_type!r}: expected {', '.join(FORMATS)}"
    known = FORMATS[fs_type]
    if missing := programs.missing(known.make[0], known.grow[0]):
        return f"file system {fs_type!r} needs {' and '.join(missing)}: install them on this node"
    return ""


async def create(fs_type: str, device: Path, programs: Programs) -> None:
    await programs.run(*FORMATS[fs_type].make, str(device), deadline=LONG_SECONDS)


async def grow(fs_type: str, device: str, mount: Path, programs: Programs) -> None:
    """Grow a mounted file system to the size of its device."""
    known = FORMATS[fs_type]
    target = device if known.grows_by_device else str(mount)
    await programs.run(*known.grow, target, deadline=LONG_SECONDS)


def grows_unmounted(fs_type: str) -> bool:
    return bool(FORMATS[fs_type].check)


async def grow_unmounted(fs_type: str, device: str, programs: Programs) -> None:
    known = FORMATS[fs_type]
    await programs.run(*known.check, device, deadline=LONG_SECONDS, ok=(0, _CORRECTED))
    await programs.run(*known.grow, device, deadline=LONG_SECONDS)


async def filesystem_on(device: Path, programs: Programs) -> str:
    """The file system on the device, or "" if it is blank."""
    ran = await programs.run(
        "blkid", "-p", "-s", "TYPE", "-o", "value", str(device), ok=(0, _NOT_FOUND)
    )
    return ran.out.strip()
