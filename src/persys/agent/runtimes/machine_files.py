"""Disk files, by way of qemu-img: made, measured, grown, and seen to be sound before a machine is started."""

import json
import os
import stat
from collections.abc import Collection
from functools import partial
from pathlib import Path

from persys.agent.commands import Ran, run
from persys.agent.ports import BaseImage
from persys.agent.runtimes.machine_errors import MachineError
from persys.core.disk_formats import (
    CLUSTER_BYTES_MAX,
    HEAD_BYTES,
    QCOW2,
    backing_of,
    format_of,
    has_external_data,
)
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls
from persys.infra.together import together
from persys.model.failure import FailureReason
from persys.model.spec import Disk
from persys.model.volume import GIB

DEADLINE_SECONDS = 60.0
# As qemu-img ends a check: sound, or clusters are taken that nobody uses, or it cannot check this format.
_SOUND = (0, 3, 63)
_CORRUPT = "CorruptDisk"
_REFERS = "DiskRefersToFile"
_SAID_LENGTH_MAX = 400
_CHAIN_MAX = 8
_Mark = tuple[int, int, int]


class DiskFiles:
    """`bases` is the directory of the images that disks may stand on."""

    def __init__(self, paths: PathCalls, *, bases: Path) -> None:
        self._paths = paths
        self._bases = bases
        self._seen_sound: dict[str, _Mark] = {}  # many disks stand on one image
        self._made: dict[
            str, _Mark
        ] = {}  # by this process, and as far as it knows not written to yet

    async def exists(self, path: str) -> bool:
        return await self._paths.run(path, Path(path).exists)

    async def source_of(self, disk: Disk) -> tuple[str, dict[str, str]]:
        """What kind of source it is, and where. Raises MachineError if there is nothing."""
        return await self._paths.run(disk.path, partial(_source_of, disk))

    async def make(self, disk: Disk, form: str, size: int, base: BaseImage | None) -> None:
        backing = ["-b", str(base.path), "-F", base.format] if base is not None else []
        await _qemu_img(disk.device, "create", "-q", "-f", form, *backing, disk.path, str(size))

    async def capacity(self, disk: Disk, form: str) -> int:
        ran = await _qemu_img(disk.device, "info", "-U", "-f", form, "--output=json", disk.path)
        try:
            return int(json.loads(ran.out)["virtual-size"])
        except (ValueError, KeyError, TypeError) as err:
            problem = f"disk {disk.device}: {disk.path} is described in unknown words"
            raise MachineError(FailureReason.STORAGE_ERROR, problem) from err

    async def grow(self, disk: Disk, form: str) -> None:
        size = str(disk.size_gb * GIB)
        await _qemu_img(disk.device, "resize", "-q", "-f", form, disk.path, size)

    async def remove(self, path: str) -> None:
        """Raises OSError."""
        unlink = partial(Path(path).unlink, missing_ok=True)
        await self._paths.run(path, unlink, deadline_seconds=LONG_SECONDS)

    async def check(self, device: str, form: str, path: str) -> None:
        """Raises MachineError for a disk on which no machine can start, or may not."""
        if not await self.exists(path):
            problem = f"disk {device}: there is no {path}"
            raise MachineError(FailureReason.STORAGE_ERROR, problem)
        if form == QCOW2:
            chain = await self.check_references(device, path)
            # Also what it stands on: a guest would hang on its first look at a broken image, and seem to run.
            async with together() as group:
                for name in dict.fromkeys(chain):
                    group.create_task(self._check_one(device, name))

    async def check_references(self, device: str, path: str) -> list[str]:
        """A qcow2 disk and what it stands on: images of the store and nothing else. MachineError."""
        return await self._paths.run(path, partial(chain_of, device, path, bases=self._bases))

    async def note_made(self, path: str) -> None:
        """What was only just made has nothing that could be broken, and its machine is waited for."""
        if path and (mark := await self._paths.run(path, partial(_mark_of, path))) is not None:
            self._made[path] = mark

    async def _check_one(self, device: str, name: str) -> None:
        if (made := self._made.get(name)) is not None:
            if await self._paths.run(name, partial(_mark_of, name)) == made:
                return
            self._made.pop(name, None)
        as_it_is = await self._paths.run(name, partial(_signature, name))
        if as_it_is is not None and self._seen_sound.get(name) == as_it_is:
            return
        words = ("-q", "-U", "-f", "qcow2", name)
        await _qemu_img(device, "check", *words, ok=_SOUND, code=_CORRUPT)
        if as_it_is is not None:
            self._seen_sound[name] = as_it_is


def _source_of(disk: Disk) -> tuple[str, dict[str, str]]:
    try:
        status = Path(disk.path).stat()
    except OSError as err:
        problem = f"disk {disk.device}: {disk.path}: {err.strerror}"
        raise MachineError(FailureReason.STORAGE_ERROR, problem) from err
    if stat.S_ISBLK(status.st_mode):
        return "block", {"dev": disk.path}
    return "file", {"file": disk.path}


def chain_of(device: str, path: str, *, bases: Path) -> list[str]:
    """QEMU would open for the guest whatever file, device or address a disk names."""
    chain = [path]
    while (name := _backing_name(device, chain[-1])) and len(chain) < _CHAIN_MAX:
        backing = os.path.normpath(Path(chain[-1]).parent / name)
        if Path(backing).parent != bases or ":" in name or Path(backing).is_symlink():
            problem = (
                f"disk {device}: {chain[-1]} refers to another file, {name[:200]!r}; not allowed"
            )
            raise MachineError(FailureReason.INVALID_SPEC, problem, code=_REFERS)
        chain.append(backing)
    return chain


def _backing_name(device: str, path: str) -> str:
    """ "" if the file is whole by itself."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD_BYTES)
            if format_of(head) != QCOW2:
                return ""
            if has_external_data(head):
                problem = f"disk {device}: {path} keeps its data in another file; not allowed"
                raise MachineError(FailureReason.INVALID_SPEC, problem, code=_REFERS)
            if (backing := backing_of(head)) is None:
                return ""
            if backing.offset > CLUSTER_BYTES_MAX:
                problem = f"disk {device}: {path} names a backing file outside its first cluster"
                raise MachineError(FailureReason.INVALID_SPEC, problem, code=_CORRUPT)
            file.seek(backing.offset)
            return os.fsdecode(file.read(backing.length))
    except OSError as err:
        problem = f"disk {device}: {path}: {err.strerror}"
        raise MachineError(FailureReason.STORAGE_ERROR, problem) from err


def _mark_of(path: str) -> _Mark | None:
    try:
        return _mark(Path(path).stat())
    except OSError:
        return None


def _signature(name: str) -> _Mark | None:
    """By which a file that nobody may write is known to be the same. None: it changes, look each time."""
    try:
        status = Path(name).stat()
    except OSError:
        return None
    return None if status.st_mode & 0o222 else _mark(status)


def _mark(status: os.stat_result) -> _Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


async def _qemu_img(
    device: str, verb: str, *words: str, ok: Collection[int] = (0,), code: str = ""
) -> Ran:
    try:
        ran = await run(["qemu-img", verb, *words], env=os.environ, deadline=DEADLINE_SECONDS)
    except TimeoutError as err:
        problem = f"disk {device}: qemu-img {verb} does not end"
        raise MachineError(FailureReason.STORAGE_ERROR, problem) from err
    except OSError as err:
        problem = f"disk {device}: qemu-img cannot be run: {err.strerror}"
        raise MachineError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing") from err
    if ran.code not in ok:
        said = " ".join((ran.err or ran.out).split())[-_SAID_LENGTH_MAX:]
        problem = f"disk {device}: qemu-img {verb} ended with code {ran.code}: {said}"
        raise MachineError(FailureReason.STORAGE_ERROR, problem, code=code)
    return ran
