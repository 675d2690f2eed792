"""The seed of a machine: what cloud-init reads, as a small ISO file that every guest can mount.

Written by whichever of three programs is there; they are one family and take the same words.
"""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from persys.agent.commands import run
from persys.agent.runtimes.machine_errors import MachineError
from persys.core.cloud_init import Seed
from persys.model.failure import FailureReason

PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")
LABEL = "cidata"  # by which cloud-init knows it
DEADLINE_SECONDS = 30.0
_OWN_ONLY = 0o600  # libvirt gives it to QEMU's user while the machine runs


async def write_seed(seed: Seed, path: Path) -> None:
    """Raises MachineError. Whole or not at all; a running machine keeps the one it has."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        problem = f"no program to write a seed for cloud-init; install one of {', '.join(PROGRAMS)}"
        raise MachineError(FailureReason.RUNTIME_ERROR, problem, code="ToolMissing")
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        await asyncio.to_thread(_write_files, seed, Path(directory))
        new = path.with_name(f"{path.name}.new")
        names = [str(Path(directory) / name) for name in seed.files]
        command = [program, "-quiet", "-output", str(new), "-volid", LABEL, "-joliet", "-rock"]
        try:
            ran = await run([*command, *names], env=os.environ, deadline=DEADLINE_SECONDS)
        except TimeoutError as err:
            raise MachineError(FailureReason.RUNTIME_ERROR, f"{program} does not end") from err
        if not ran.ok:
            said = " ".join(ran.err.split())
            problem = f"{program} ended with code {ran.code}: {said[-400:]}"
            raise MachineError(FailureReason.STORAGE_ERROR, problem)
    await asyncio.to_thread(_put, new, path)


def _write_files(seed: Seed, directory: Path) -> None:
    for name, content in seed.files.items():
        (directory / name).write_bytes(content)


def _put(new: Path, path: Path) -> None:
    new.chmod(_OWN_ONLY)
    new.replace(path)
