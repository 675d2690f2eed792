"""Disk files, by way of qemu-img: made, measured, grown, and seen to be sound before a machine is started."""

import asyncio
import json
import os
import stat
from collections.abc import Collection
from pathlib import Path

from persys.agent.commands import Ran, run
from persys.agent.ports import BaseImage
from persys.agent.runtimes.machine_errors import MachineError
from persys.infra.together import together
from persys.model.failure import FailureReason
from persys.model.spec import Disk
from persys.model.volume import GIB

DEADLINE_SECONDS = 60.0
# As qemu-img ends a check: sound, or clusters are taken that nobody uses, or it cannot check this format.
_SOUND = (0, 3, 63)
_CORRUPT = "CorruptDisk"
_SAID_LENGTH_MAX = 400


def source_of(disk: Disk) -> tuple[str, dict[str, str]]:
    """What kind of source it is, and where. Raises MachineError if there is nothing."""
    try:
        status = Path(disk.path).stat()
    except OSError as err:
        problem = f"disk {disk.device}: {disk.path}: {err.strerror}"
        raise MachineError(FailureReason.STORAGE_ERROR, problem) from err
    if stat.S_ISBLK(status.st_mode):
        return "block", {"dev": disk.path}
    return "file", {"file": disk.path}


async def make(disk: Disk, form: str, size: int, base: BaseImage | None) -> None:
    backing = ["-b", str(base.path), "-F", base.format] if base is not None else []
    await _qemu_img(disk.device, "create", "-q", "-f", form, *backing, disk.path, str(size))


async def capacity(disk: Disk) -> int:
    ran = await _qemu_img(disk.device, "info", "-U", "--output=json", disk.path)
    try:
        return int(json.loads(ran.out)["virtual-size"])
    except (ValueError, KeyError, TypeError) as err:
        problem = f"disk {disk.device}: {disk.path} is described in unknown words"
        raise MachineError(FailureReason.STORAGE_ERROR, problem) from err


async def grow(disk: Disk, form: str) -> None:
    size = str(disk.size_gb * GIB)
    await _qemu_img(disk.device, "resize", "-q", "-f", form, disk.path, size)


async def check(device: str, form: str, path: str) -> None:
    """Raises MachineError for a disk on which no machine can start."""
    if not await asyncio.to_thread(Path(path).exists):
        problem = f"disk {device}: there is no {path}"
        raise MachineError(FailureReason.STORAGE_ERROR, problem)
    if form == "qcow2":
        await _check_chain(device, path)


async def _check_chain(device: str, path: str) -> None:
    """Also what it stands on: a guest would hang on its first look at a broken image, and seem to run."""
    told = ("-U", "--backing-chain", "--output=json", path)
    ran = await _qemu_img(device, "info", *told, code=_CORRUPT)
    try:
        chain = [(str(each["format"]), str(each["filename"])) for each in json.loads(ran.out)]
    except (ValueError, KeyError, TypeError) as err:
        problem = f"disk {device}: {path} is described in unknown words"
        raise MachineError(FailureReason.STORAGE_ERROR, problem) from err
    async with together() as group:
        for form, name in chain:
            if form == "qcow2":
                words = ("-q", "-U", "-f", form, name)
                group.create_task(_qemu_img(device, "check", *words, ok=_SOUND, code=_CORRUPT))


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
