"""The state directory of each VM: <root>/<workload id>, with cloud-init ISO, console log and records.

`run` has the start and end of the last run, which libvirt does not store. `disks` are the disks that this
agent created, recorded before their creation: only these are ever removed. `reservations` are addresses in
libvirt's DHCP. Losing the directory restarts and removes nothing. Other users may traverse the directory but
not list it: QEMU runs as another user.
"""

import shutil
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from persys.infra.atomic_files import write_file
from persys.model.ids import WorkloadId

_TRAVERSABLE = 0o711
RecordT = TypeVar("RecordT")


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
