"""Writes the cloud-init data of a VM as an ISO file (NoCloud data source).

Uses the first of three compatible programs that is installed.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from persys.agent.runtimes.vm.libvirt import VmError
from persys.agent.subprocesses import run
from persys.core.agent.cloud_init import Seed
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.model.status import FailureReason

PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")
LABEL = "cidata"  # the volume label that cloud-init expects
DEADLINE_SECONDS = 30.0
_OWN_ONLY = 0o600  # libvirt changes the owner to QEMU's user while the VM runs


async def write_cloud_init_iso(seed: Seed, path: Path, paths: PathCalls) -> None:
    """Write the file atomically; a running VM keeps the old one. Raises VmError, OSError."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        problem = f"no program to write the cloud-init ISO: install one of {', '.join(PROGRAMS)}"
        raise VmError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing")
    new = path.with_name(f"{path.name}.new")
    directory = await paths.run(path, partial(_write_files, seed, path.parent), discard=_remove)
    try:
        names = [str(directory / name) for name in seed.files]
        command = [program, "-quiet", "-output", str(new), "-volid", LABEL, "-joliet", "-rock"]
        await _run([*command, *names])
    finally:
        with suppress(PathTimeoutError):  # removed together with the VM
            await paths.run(path, partial(_remove, directory))
    await paths.run(path, partial(_put, new, path))


async def _run(command: list[str]) -> None:
    program = command[0]
    try:
        ran = await run(command, env=os.environ, deadline=DEADLINE_SECONDS)
    except TimeoutError as err:
        raise VmError(FailureReason.RUNTIME_ERROR, f"{program} timed out") from err
    except OSError as err:
        problem = f"cannot run {program}: {err}"
        raise VmError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing") from err
    if not ran.ok:
        output = " ".join(ran.err.split())
        problem = f"{program} exited with code {ran.code}: {output[-400:]}"
        raise VmError(FailureReason.STORAGE_ERROR, problem)


def _write_files(seed: Seed, parent: Path) -> Path:
    """Write the files to a new directory and return it."""
    directory = Path(tempfile.mkdtemp(dir=parent))
    try:
        for name, content in seed.files.items():
            (directory / name).write_bytes(content)
    except BaseException:
        _remove(directory)
        raise
    return directory


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _put(new: Path, path: Path) -> None:
    new.chmod(_OWN_ONLY)
    new.replace(path)
