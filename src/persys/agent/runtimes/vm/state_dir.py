"""The state directory of each VM: <root>/<workload id>, with cloud-init ISO, console log and records.

`run` has the start and end of the last run, which libvirt does not store. `disks` are the disks that this
agent created, recorded before their creation: only these are ever removed. `reservations` are addresses in
libvirt's DHCP. Losing the directory restarts and removes nothing. Other users may traverse the directory but
not list it: QEMU runs as another user.

The cloud-init data is an ISO file (NoCloud data source), written with the first of three compatible programs
that is installed.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from persys.agent.runtimes.vm.libvirt import VmError
from persys.core.agent.cloud_init import Seed
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.infra.atomic_files import write_file
from persys.infra.subprocesses import run
from persys.model.ids import WorkloadId
from persys.model.status import FailureReason

PROGRAMS = ("genisoimage", "mkisofs", "xorrisofs")
LABEL = "cidata"  # the volume label that cloud-init expects
DEADLINE_SECONDS = 30.0
_OWN_ONLY = 0o600  # libvirt changes the owner to QEMU's user while the VM runs


_TRAVERSABLE = 0o711
RecordT = TypeVar("RecordT")


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


class Run(Struct, frozen=True):
    """One run of a VM. `number` is libvirt's id of the running domain."""

    number: int
    started_at: datetime
    finished_at: datetime | None = None
    exit_code: int = 0
    ending: str = ""


class DiskRecord(Struct, frozen=True):
    device: str
    made_at: datetime
    path: str = ""  # if the spec has a path
    pool: str = ""
    volume: str = ""
    os_image: str = ""  # the image of its backing file
    base: str = ""  # the backing file

    @property
    def name(self) -> str:
        return self.volume or Path(self.path).name


class Reservation(Struct, frozen=True):
    network: str
    mac_address: str
    address: str


class VmStateDir:
    """All methods block and raise OSError."""

    def __init__(self, root: Path, workload_id: WorkloadId) -> None:
        self.root = root / workload_id
        self.workload_id = workload_id
        self.seed = self.root / "seed.iso"
        self.console = self.root / "console.log"
        self._run = self.root / "run.json"
        self._disks = self.root / "disks.json"
        self._reservations = self.root / "reservations.json"

    def create(self) -> None:
        for directory in (self.root.parent, self.root):
            directory.mkdir(parents=True, exist_ok=True, mode=_TRAVERSABLE)

    def read_run(self) -> Run | None:
        return _read(self._run, Run)

    def write_run(self, run: Run) -> None:
        self.create()
        write_file(self._run, msgspec.json.encode(run))

    def remove_run(self) -> None:
        """A redefined domain has not run yet."""
        self._run.unlink(missing_ok=True)

    def read_disks(self) -> tuple[DiskRecord, ...]:
        return _read(self._disks, tuple[DiskRecord, ...]) or ()

    def write_disks(self, disks: tuple[DiskRecord, ...]) -> None:
        self.create()
        write_file(self._disks, msgspec.json.encode(disks))

    def read_reservations(self) -> tuple[Reservation, ...]:
        return _read(self._reservations, tuple[Reservation, ...]) or ()

    def write_reservations(self, reservations: tuple[Reservation, ...]) -> None:
        self.create()
        write_file(self._reservations, msgspec.json.encode(reservations))

    def discard(self) -> None:
        """Remove everything except the record of existing disks."""
        if not self.read_disks():
            shutil.rmtree(self.root, ignore_errors=True)
            return
        for path in self.root.iterdir():
            if path.is_dir():  # left by an agent that died while it wrote an ISO
                shutil.rmtree(path)
            elif path != self._disks:
                path.unlink(missing_ok=True)


def state_dirs(root: Path) -> list[VmStateDir]:
    """The state directories of all VMs. Blocks."""
    if not root.is_dir():
        return []
    return [VmStateDir(root, WorkloadId(path.name)) for path in sorted(root.iterdir())]


def _read(path: Path, kind: type[RecordT]) -> RecordT | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
