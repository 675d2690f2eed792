"""Mounting and unmounting, as the kernel's own table says what is mounted.

Both look first: what is mounted already stays, what is not mounted is unmounted. mount(8) says by its exit
code whose fault a failure is.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import NamedTuple

from persys.agent.volumes.tools import Tools, VolumeError, said
from persys.infra.aio.path_calls import PathCalls
from persys.infra.mount_table import read_mount_table

MOUNT_SECONDS = 60.0
UNTRUSTED = "nosuid,nodev"
_LOOPS = Path("/sys/block")
_TABLE = "/proc/self/mountinfo"
_LAYERS_MAX = 16  # mounted on top of each other
_LOOKS_MAX = 500
_LOOK_AGAIN_SECONDS = 0.02
# Of mount(8); 32 is every failure of the mount itself, also of an NFS server that does not answer.
_FAULTS = {
    1: ("MountNotPermitted", "the agent may not mount"),
    2: ("MountSystemError", "the system has no room or no loop device for it"),
    4: ("MountBroken", "mount itself is broken"),
    8: ("MountInterrupted", "mount was interrupted"),
    16: ("MountTableBroken", "the table of mounts cannot be written"),
    32: ("MountFailed", "it cannot be mounted"),
}
_BUSY = 32


class Mounted(NamedTuple):
    source: str
    fs_type: str


def mounted_at(path: Path) -> Mounted | None:
    """What is mounted there now. The path must have no links in it. Blocks."""
    found = None
    for entry in read_mount_table():
        if entry.mount_point == str(path):
            found = Mounted(entry.source, entry.fs_type)  # the last one is on top
    return found


def backing_file(device: str) -> str:
    """The file behind a loop device; "" if there is none. Blocks."""
    try:
        said_path = (_LOOPS / Path(device).name / "loop/backing_file").read_text()
    except OSError:
        return ""
    return said_path.rstrip("\n")


def _is_behind_a_device(file: str) -> bool:
    return any(backing_file(device.name) == file for device in _LOOPS.glob("loop*"))


class Mounts:
    def __init__(self, tools: Tools, paths: PathCalls) -> None:
        self._tools = tools
        self._paths = paths

    async def at(self, path: Path) -> Mounted | None:
        """What is mounted there now. The path must have no links in it."""
        return await self._paths.run(_TABLE, partial(mounted_at, path))

    async def file_behind(self, device: str) -> str:
        """The file behind a loop device; "" if there is none."""
        return await self._paths.run(_LOOPS, partial(backing_file, device))

    async def until_let_go(self, file: Path) -> None:
        """A loop device outlives its mount while a process reads it, and keeps its own view of the file.

        Raises VolumeError if it does not end.
        """
        for _ in range(_LOOKS_MAX):
            if not await self._paths.run(_LOOPS, partial(_is_behind_a_device, str(file))):
                return
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        raise VolumeError(f"{file} is still behind a loop device", code="VolumeBusy")

    async def mount(self, source: str, at: Path, fs_type: str, options: str = "") -> None:
        """Raises VolumeError. Its content is a workload's, so it brings neither devices nor set-uid files."""
        await self._paths.run(at, partial(at.mkdir, parents=True, exist_ok=True))
        flags = ",".join(filter(None, (options, UNTRUSTED)))
        command = ("mount", "-t", fs_type, "-o", flags, source, str(at))
        ran = await self._tools.run(*command, deadline=MOUNT_SECONDS, ok=range(256))
        if not ran.ok:
            code, fault = _FAULTS.get(ran.code, _FAULTS[32])
            raise VolumeError(f"mounting {source}: {fault}: {said(ran)}", code=code)

    async def unmount(self, at: Path) -> None:
        """Raises VolumeError; then it is in use, or cannot be reached."""
        for _ in range(_LAYERS_MAX):
            if await self.at(at) is None:
                return
            ran = await self._tools.run("umount", str(at), deadline=MOUNT_SECONDS, ok=range(256))
            if not ran.ok:
                code = "VolumeBusy" if ran.code == _BUSY else "UnmountFailed"
                raise VolumeError(f"unmounting {at}: {said(ran)}", code=code)
        text = f"unmounting {at}: something is mounted there after {_LAYERS_MAX} runs of umount"
        raise VolumeError(text, code="UnmountFailed")
