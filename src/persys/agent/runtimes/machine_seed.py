"""The seed of a machine: what cloud-init reads, as a small ISO file that every guest can mount.

Written by whichever of three programs is there; they are one family and take the same words.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

from persys.agent.commands import run
from persys.agent.runtimes.machine_errors import MachineError
from persys.core.cloud_init import Seed
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.model.failure import FailureReason

PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")
LABEL = "cidata"  # by which cloud-init knows it
DEADLINE_SECONDS = 30.0
_OWN_ONLY = 0o600  # libvirt gives it to QEMU's user while the machine runs


async def write_seed(seed: Seed, path: Path, paths: PathCalls) -> None:
    """Raises MachineError, OSError. Whole or not at all; a running machine keeps the one it has."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        problem = f"no program to write a seed for cloud-init; install one of {', '.join(PROGRAMS)}"
        raise MachineError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing")
    new = path.with_name(f"{path.name}.new")
    directory = await paths.run(path, partial(_write_files, seed, path.parent), discard=_remove)
    try:
        names = [str(directory / name) for name in seed.files]
        command = [program, "-quiet", "-output", str(new), "-volid", LABEL, "-joliet", "-rock"]
        await _run([*command, *names])
    finally:
        with suppress(PathTimeoutError):  # it goes with the machine
            await paths.run(path, partial(_remove, directory))
    await paths.run(path, partial(_put, new, path))


async def _run(command: list[str]) -> None:
    program = command[0]
    try:
        ran = await run(command, env=os.environ, deadline=DEADLINE_SECONDS)
    except TimeoutError as err:
        raise MachineError(FailureReason.RUNTIME_ERROR, f"{program} does not end") from err
    except OSError as err:
        problem = f"{program} cannot be run: {err}"
        raise MachineError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing") from err
    if not ran.ok:
        said = " ".join(ran.err.split())
        problem = f"{program} ended with code {ran.code}: {said[-400:]}"
        raise MachineError(FailureReason.STORAGE_ERROR, problem)


def _write_files(seed: Seed, parent: Path) -> Path:
    """A new directory with them."""
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
