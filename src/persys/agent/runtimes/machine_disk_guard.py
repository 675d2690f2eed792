"""Starts machines only on the disks that the node policy allows, and proves it afterwards.

QEMU opens a disk by its path, so a link that is swapped in between the check and the start would be followed.
Therefore the disks that a spec names are opened before the start, without following a link, and compared with
the files that QEMU has open after it. It cannot be compared where QEMU's process is not visible from here.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from persys.agent.host_paths import HostPathError, open_below
from persys.agent.policy import NodePolicy
from persys.agent.runtimes.machine_errors import MachineError
from persys.infra.aio.path_calls import PathCalls
from persys.model.failure import FailureReason
from persys.model.spec import Disk

DISK_REPLACED = "DiskReplaced"


class FileKey(NamedTuple):
    """What tells one file or block device from another."""

    kind: str
    device: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class HeldDisk:
    """An open disk. Who holds it closes it."""

    disk: Disk
    key: FileKey
    descriptor: int

    def close(self) -> None:
        os.close(self.descriptor)


class DiskGuard:
    def __init__(self, policy: NodePolicy, paths: PathCalls) -> None:
        self._policy = policy
        self._paths = paths

    @asynccontextmanager
    async def held(self, disks: Iterable[Disk]) -> AsyncIterator[list[HeldDisk]]:
        """Those that have a path and are there, open meanwhile. Raises MachineError."""
        with ExitStack() as stack:
            held = []
            for disk in disks:
                if disk.path:
                    one = await self._paths.run(
                        disk.path, partial(self._hold, disk), discard=_close
                    )
                    if one is not None:
                        stack.callback(one.close)
                        held.append(one)
            yield held

    async def check_started(self, held: Sequence[HeldDisk], uuid: str) -> None:
        """Raises MachineError if the machine runs on another file than is held."""
        if not held:
            return
        problem = await self._paths.run("/proc", partial(_replaced, held, uuid))
        if problem:
            raise MachineError(FailureReason.INVALID_SPEC, problem, code=DISK_REPLACED)

    def _hold(self, disk: Disk) -> HeldDisk | None:
        wanted = self._policy.bind(disk.path, "")
        try:
            descriptor = open_below(wanted.root, wanted.source)
        except HostPathError as err:
            if err.missing:  # it is made, or reported where it is needed
                return None
            problem = f"disk {disk.device}: {err}"
            raise MachineError(err.failure.reason, problem, code="HostPath") from err
        return HeldDisk(disk, _key(os.fstat(descriptor)), descriptor)


def _close(held: HeldDisk | None) -> None:
    if held is not None:
        held.close()


def _replaced(held: Sequence[HeldDisk], uuid: str) -> str:
    """Which disk the machine does not have open; "" if none, or if it cannot be seen."""
    opened = _open_files(uuid)
    if not opened:
        return ""
    for one in held:
        if one.key not in opened:
            path = one.disk.path
            return f"disk {one.disk.device}: {path} was replaced while the machine started"
    return ""


def _open_files(uuid: str) -> set[FileKey]:
    """What QEMU has open. Empty: it has ended, or is not visible from here."""
    found: set[FileKey] = set()
    for process in _processes(uuid):
        with suppress(OSError):  # it has ended
            for entry in os.scandir(process / "fd"):
                with suppress(OSError):
                    found.add(_key(Path(entry.path).stat()))
    return found


def _processes(uuid: str) -> Iterator[Path]:
    asked = b"\0-uuid\0" + uuid.encode() + b"\0"
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            if asked in file.read_bytes():
                yield file.parent


def _key(status: os.stat_result) -> FileKey:
    if stat.S_ISBLK(status.st_mode):
        return FileKey("block", status.st_rdev)
    return FileKey("file", status.st_dev, status.st_ino)
