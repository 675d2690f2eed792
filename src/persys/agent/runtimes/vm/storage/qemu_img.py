"""Disk files through qemu-img: create, measure, grow, and check before a VM starts."""

import json
import os
import stat
from collections.abc import Collection
from functools import partial
from pathlib import Path

from persys.agent.ports import BaseImage
from persys.agent.runtimes.vm.libvirt import VmError
from persys.core.agent.storage import (
    CLUSTER_BYTES_MAX,
    HEAD_BYTES,
    QCOW2,
    backing_of,
    format_of,
    has_external_data,
)
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls
from persys.infra.aio.task_group import task_group
from persys.infra.subprocesses import ProgramResult, run
from persys.model.node import GIB
from persys.model.spec import Disk
from persys.model.status import FailureReason

DEADLINE_SECONDS = 60.0
# Exit codes of `qemu-img check`: no errors, leaked clusters only, or a format without checks.
_SOUND = (0, 3, 63)
_CORRUPT = "CorruptDisk"
_REFERS = "DiskRefersToFile"
_OUTPUT_LENGTH_MAX = 400
_CHAIN_MAX = 8
_Mark = tuple[int, int, int]


class DiskFiles:
    """`bases` is the directory of the images that disks may use as backing files."""

    def __init__(self, paths: PathCalls, *, bases: Path) -> None:
        self._paths = paths
        self._bases = bases
        self._seen_sound: dict[str, _Mark] = {}  # many disks share one image
        self._made: dict[str, _Mark] = {}  # created by this process, not written to yet

    async def exists(self, path: str) -> bool:
        return await self._paths.run(path, Path(path).exists)

    async def source_of(self, disk: Disk) -> tuple[str, dict[str, str]]:
        """The kind of source and its location. Raises VmError if it does not exist."""
        return await self._paths.run(disk.path, partial(_source_of, disk))

    async def create(self, disk: Disk, form: str, size: int, base: BaseImage | None) -> None:
        backing = ["-b", str(base.path), "-F", base.format] if base is not None else []
        await _qemu_img(disk.device, "create", "-q", "-f", form, *backing, disk.path, str(size))

    async def capacity(self, disk: Disk, form: str) -> int:
        ran = await _qemu_img(disk.device, "info", "-U", "-f", form, "--output=json", disk.path)
        try:
            return int(json.loads(ran.out)["virtual-size"])
        except (ValueError, KeyError, TypeError) as err:
            problem = f"disk {disk.device}: unexpected output of qemu-img info for {disk.path}"
            raise VmError(FailureReason.STORAGE_ERROR, problem) from err

    async def grow(self, disk: Disk, form: str) -> None:
        size = str(disk.size_gb * GIB)
        await _qemu_img(disk.device, "resize", "-q", "-f", form, disk.path, size)

    async def remove(self, path: str) -> None:
        """Raises OSError."""
        unlink = partial(Path(path).unlink, missing_ok=True)
        await self._paths.run(path, unlink, deadline_seconds=LONG_SECONDS)

    async def check(self, device: str, form: str, path: str) -> None:
        """Raises VmError if a VM cannot or must not start from this disk."""
        if not await self.exists(path):
            problem = f"disk {device}: {path} does not exist"
            raise VmError(FailureReason.STORAGE_ERROR, problem)
        if form == QCOW2:
            chain = await self.check_references(device, path)
            # Check backing files too: with a corrupt image the guest hangs, but the VM appears to run.
            async with task_group() as group:
                for name in dict.fromkeys(chain):
                    group.create_task(self._check_one(device, name))

    async def check_references(self, device: str, path: str) -> list[str]:
        """A qcow2 disk and its backing files, which must be in the image store. Raises VmError."""
        return await self._paths.run(path, partial(backing_chain, device, path, bases=self._bases))

    async def record_created(self, path: str) -> None:
        """Record a new disk: it cannot be corrupt yet, so its first start skips the check."""
        if path and (mark := await self._paths.run(path, partial(_mark_of, path))) is not None:
            self._made[path] = mark

    async def _check_one(self, device: str, name: str) -> None:
        if (made := self._made.get(name)) is not None:
            if await self._paths.run(name, partial(_mark_of, name)) == made:
                return
            self._made.pop(name, None)
        signature = await self._paths.run(name, partial(_signature, name))
        if signature is not None and self._seen_sound.get(name) == signature:
            return
        arguments = ("-q", "-U", "-f", "qcow2", name)
        await _qemu_img(device, "check", *arguments, ok=_SOUND, code=_CORRUPT)
        if signature is not None:
            self._seen_sound[name] = signature


def _source_of(disk: Disk) -> tuple[str, dict[str, str]]:
    try:
        status = Path(disk.path).stat()
    except OSError as err:
        problem = f"disk {disk.device}: {disk.path}: {err.strerror}"
        raise VmError(FailureReason.STORAGE_ERROR, problem) from err
    if stat.S_ISBLK(status.st_mode):
        return "block", {"dev": disk.path}
    return "file", {"file": disk.path}


def backing_chain(device: str, path: str, *, bases: Path) -> list[str]:
    """The disk and its backing files. Others are rejected: QEMU would open any path for the guest."""
    chain = [path]
    while (name := _backing_name(device, chain[-1])) and len(chain) < _CHAIN_MAX:
        backing = os.path.normpath(Path(chain[-1]).parent / name)
        if Path(backing).parent != bases or ":" in name or Path(backing).is_symlink():
            problem = (
                f"disk {device}: {chain[-1]} refers to another file, {name[:200]!r}, "
                "which is not allowed"
            )
            raise VmError(FailureReason.INVALID_SPEC, problem, code=_REFERS)
        chain.append(backing)
    return chain


def _backing_name(device: str, path: str) -> str:
    """The backing file of the disk, or ""."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
            if format_of(head) != QCOW2:
                return ""
            if has_external_data(head):
                problem = f"disk {device}: {path} has an external data file, which is not allowed"
                raise VmError(FailureReason.INVALID_SPEC, problem, code=_REFERS)
            if (backing := backing_of(head)) is None:
                return ""
            if backing.offset > CLUSTER_BYTES_MAX:
                problem = f"disk {device}: {path} names a backing file outside its first cluster"
                raise VmError(FailureReason.INVALID_SPEC, problem, code=_CORRUPT)
            file.seek(backing.offset)
            return os.fsdecode(file.read(backing.length))
    except OSError as err:
        problem = f"disk {device}: {path}: {err.strerror}"
        raise VmError(FailureReason.STORAGE_ERROR, problem) from err


def _mark_of(path: str) -> _Mark | None:
    try:
        return _mark(Path(path).stat())
    except OSError:
        return None


def _signature(name: str) -> _Mark | None:
    """The identity of a read-only file. None if it is writable: then it is checked each time."""
    try:
        status = Path(name).stat()
    except OSError:
        return None
    return None if status.st_mode & 0o222 else _mark(status)


def _mark(status: os.stat_result) -> _Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


async def _qemu_img(
    device: str, verb: str, *arguments: str, ok: Collection[int] = (0,), code: str = ""
) -> ProgramResult:
    try:
        ran = await run(["qemu-img", verb, *arguments], env=os.environ, deadline=DEADLINE_SECONDS)
    except TimeoutError as err:
        problem = f"disk {device}: qemu-img {verb} did not finish within {DEADLINE_SECONDS:.0f} s"
        raise VmError(FailureReason.STORAGE_ERROR, problem) from err
    except OSError as err:
        problem = f"disk {device}: cannot run qemu-img: {err.strerror}"
        raise VmError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing") from err
    if ran.code not in ok:
        output = " ".join((ran.err or ran.out).split())[-_OUTPUT_LENGTH_MAX:]
        problem = f"disk {device}: qemu-img {verb} exited with code {ran.code}: {output}"
        raise VmError(FailureReason.STORAGE_ERROR, problem, code=code)
    return ran
