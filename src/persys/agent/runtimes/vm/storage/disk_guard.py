"""Verifies that a VM runs on the disks that the node policy allows.

QEMU opens a disk by its path and would follow a link that is created between the check and the start. The
disks of the spec are therefore opened before the start without following links, and compared with the files
that QEMU has open after it. The comparison is skipped if the QEMU process is not visible to the agent.
"""

import os
import stat
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from persys.agent.runtimes.host_paths import HostPathError, open_below
from persys.agent.runtimes.vm.libvirt import VmError
from persys.agent.workloads.node_policy import NodePolicy
from persys.infra.aio.path_calls import PathCalls
from persys.model.spec import Disk
from persys.model.status import FailureReason

DISK_REPLACED = "DiskReplaced"


class FileKey(NamedTuple):
    """The identity of a file or block device."""

    kind: str
    device: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class HeldDisk:
    """An open disk. The owner must close it."""

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
        """Hold the existing disks that have a path open in this context. Raises VmError."""
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
        """Raises VmError if the VM runs on a file other than the one that is held."""
        if not held:
            return
        problem = await self._paths.run("/proc", partial(_replaced, held, uuid))
        if problem:
            raise VmError(FailureReason.INVALID_SPEC, problem, code=DISK_REPLACED)

    def _hold(self, disk: Disk) -> HeldDisk | None:
        wanted = self._policy.bind(disk.path, "")
        try:
            descriptor = open_below(wanted.root, wanted.source)
        except HostPathError as err:
            if err.missing:  # it is created later, or reported where it is required
                return None
            problem = f"disk {disk.device}: {err}"
            raise VmError(err.failure.reason, problem, code="HostPath") from err
        return HeldDisk(disk, _key(os.fstat(descriptor)), descriptor)


def _close(held: HeldDisk | None) -> None:
    if held is not None:
        held.close()


def _replaced(held: Sequence[HeldDisk], uuid: str) -> str:
    """The problem with the first disk that QEMU does not have open; "" if none, or if not visible."""
    opened = _open_files(uuid)
    if not opened:
        return ""
    for one in held:
        if one.key not in opened:
            path = one.disk.path
            return f"disk {one.disk.device}: {path} was replaced while the VM started"
    return ""


def _open_files(uuid: str) -> set[FileKey]:
    """Files that QEMU has open. Empty if it has exited or is not visible."""
    found: set[FileKey] = set()
    for process in _processes(uuid):
        with suppress(OSError):  # the process has exited
            for entry in os.scandir(process / "fd"):
                with suppress(OSError):
                    found.add(_key(Path(entry.path).stat()))
    return found


def _processes(uuid: str) -> Iterator[Path]:
    wanted = b"\0-uuid\0" + uuid.encode() + b"\0"
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has exited
            if wanted in file.read_bytes():
                yield file.parent


def _key(status: os.stat_result) -> FileKey:
    if stat.S_ISBLK(status.st_mode):
        return FileKey("block", status.st_rdev)
    return FileKey("file", status.st_dev, status.st_ino)
