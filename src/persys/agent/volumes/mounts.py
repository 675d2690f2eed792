"""Mounts and unmounts, based on the kernel's mount table.

Both operations check the table first and are idempotent. The exit code of mount(8) gives the cause of a
failure.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import NamedTuple

from persys.agent.volumes.programs import Tools, VolumeError, said
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
    def __init__(self, tools: Tools, paths: PathCalls) -> None:
        self._tools = tools
        self._paths = paths

    async def at(self, path: Path) -> Mounted | None:
        """The current mount at a path without links."""
        return await self._paths.run(_TABLE, partial(mounted_at, path))

    async def file_behind(self, device: str) -> str:
        """The backing file of a loop device, or ""."""
        return await self._paths.run(_LOOPS, partial(backing_file, device))

    async def until_let_go(self, file: Path) -> None:
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
        ran = await self._tools.run(*command, deadline=MOUNT_SECONDS, ok=range(256))
        if not ran.ok:
            code, fault = _FAULTS.get(ran.code, _FAULTS[32])
            raise VolumeError(f"cannot mount {source}: {fault}: {said(ran)}", code=code)

    async def unmount(self, at: Path) -> None:
        """Raises VolumeError if it is in use or cannot be reached."""
        for _ in range(_LAYERS_MAX):
            if await self.at(at) is None:
                return
            ran = await self._tools.run("umount", str(at), deadline=MOUNT_SECONDS, ok=range(256))
            if not ran.ok:
                code = "VolumeBusy" if ran.code == _BUSY else "UnmountFailed"
                raise VolumeError(f"cannot unmount {at}: {said(ran)}", code=code)
        text = f"cannot unmount {at}: still mounted after {_LAYERS_MAX} runs of umount"
        raise VolumeError(text, code="UnmountFailed")
