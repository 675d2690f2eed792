"""What the agent keeps of each machine: <root>/<workload id>, with its seed, its console log and records.

`run` is when the machine began and ended, which libvirt does not remember. `disks` are those that this agent
made, written before they are: only they are ever removed. `reservations` are its addresses with libvirt's
DHCP. Losing all of it restarts nothing and removes nothing. Others may pass through, but not look around:
QEMU runs as another user.
"""

import shutil
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from persys.infra.files import write_whole
from persys.model.ids import WorkloadId

_PASSABLE = 0o711
RecordT = TypeVar("RecordT")


class Run(Struct, frozen=True):
    """One life of a machine. `number` is libvirt's own for it."""

    number: int
    started_at: datetime
    finished_at: datetime | None = None
    exit_code: int = 0
    ending: str = ""


class MadeDisk(Struct, frozen=True):
    device: str
    made_at: datetime
    path: str = ""  # for one that the user gave a place
    pool: str = ""
    volume: str = ""
    os_image: str = ""  # what it stands on
    base: str = ""  # the file of that

    @property
    def name(self) -> str:
        return self.volume or Path(self.path).name


class Reservation(Struct, frozen=True):
    network: str
    mac_address: str
    address: str


class MachinePlace:
    """All methods block, and raise OSError."""

    def __init__(self, root: Path, workload_id: WorkloadId) -> None:
        self.root = root / workload_id
        self.workload_id = workload_id
        self.seed = self.root / "seed.iso"
        self.console = self.root / "console.log"
        self._run = self.root / "run.json"
        self._disks = self.root / "disks.json"
        self._reservations = self.root / "reservations.json"

    def make(self) -> None:
        for directory in (self.root.parent, self.root):
            directory.mkdir(parents=True, exist_ok=True, mode=_PASSABLE)

    def read_run(self) -> Run | None:
        return _read(self._run, Run)

    def keep_run(self, run: Run) -> None:
        self.make()
        write_whole(self._run, msgspec.json.encode(run))

    def forget_run(self) -> None:
        """What is defined anew has not run yet."""
        self._run.unlink(missing_ok=True)

    def read_disks(self) -> tuple[MadeDisk, ...]:
        return _read(self._disks, tuple[MadeDisk, ...]) or ()

    def keep_disks(self, disks: tuple[MadeDisk, ...]) -> None:
        self.make()
        write_whole(self._disks, msgspec.json.encode(disks))

    def read_reservations(self) -> tuple[Reservation, ...]:
        return _read(self._reservations, tuple[Reservation, ...]) or ()

    def keep_reservations(self, reservations: tuple[Reservation, ...]) -> None:
        self.make()
        write_whole(self._reservations, msgspec.json.encode(reservations))

    def discard(self) -> None:
        """All but the record of disks that are still there."""
        if not self.read_disks():
            shutil.rmtree(self.root, ignore_errors=True)
            return
        for path in self.root.iterdir():
            if path.is_dir():  # an agent died while it wrote a seed
                shutil.rmtree(path)
            elif path != self._disks:
                path.unlink(missing_ok=True)


def places(root: Path) -> list[MachinePlace]:
    """Of all machines that there is anything of. Blocks."""
    if not root.is_dir():
        return []
    return [MachinePlace(root, WorkloadId(path.name)) for path in sorted(root.iterdir())]


def _read(path: Path, kind: type[RecordT]) -> RecordT | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
