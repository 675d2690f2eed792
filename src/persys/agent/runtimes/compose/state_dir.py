"""The state directory of each stack: <root>/<workload id>, readable by the agent only.

    repository.git  the bare repository of a git stack
    export          the files of the deployed commit, which Compose reads and builds from
    source          a copy of the export that containers mount; the agent never reads it
    project         the working directory of Compose, empty
    shapes.json     the shape of each container when it was first seen running

`planned` describes the current export; `applied` describes what the containers were last created from. Both
are written atomically. Containers are found by labels, so losing this directory restarts nothing.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from persys.core.agent.compose_status import ServicePlan
from persys.core.agent.deviations import Shape
from persys.infra.atomic_files import write_file
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import Port

_PRIVATE = 0o700
# Earlier agents left resolved values in these files.
_FORMER = ("env", "override.json", "no_waiting.json")
_FORMER_IN_PROJECT = ("compose.yaml", ".env")


class StackRecord(Struct, frozen=True):
    revision: Revision
    services: dict[str, ServicePlan]
    hashes: dict[str, str]  # of each service's configuration
    waits: dict[str, tuple[str, ...]] = {}  # services that start only when others are ready
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    commit: str = ""
    source_has_data: bool = False  # a service writes to its copy of the checkout
    files: tuple[str, ...] = ()  # files of the copy that come from the commit
    project: str = ""  # "": created by an earlier agent, which named it after workload and node


class StackStateDir:
    def __init__(self, root: Path, workload_id: WorkloadId) -> None:
        self.root = root / workload_id
        self.project = self.root / "project"
        self.repository = self.root / "repository.git"
        self.export = self.root / "export"
        self.source = self.root / "source"
        self.no_variables = self.root / "no_variables.env"
        self.lock = self.root / "lock"
        self._planned = self.root / "planned.json"
        self._applied = self.root / "applied.json"
        self._shapes = self.root / "shapes.json"

    def create(self) -> None:
        """Raises OSError."""
        for directory in (self.root.parent, self.root, self.project):
            directory.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
        for name in _FORMER:
            (self.root / name).unlink(missing_ok=True)
        for name in _FORMER_IN_PROJECT:
            (self.project / name).unlink(missing_ok=True)
        write_file(self.no_variables, b"")

    def empty_export(self) -> None:
        """Raises OSError."""
        if self.export.exists():
            shutil.rmtree(self.export)
        self.export.mkdir(mode=_PRIVATE)

    def read_planned(self) -> StackRecord | None:
        return _read(self._planned)

    def read_applied(self) -> StackRecord | None:
        return _read(self._applied)

    def write_planned(self, record: StackRecord) -> None:
        write_file(self._planned, msgspec.json.encode(record))

    def write_applied(self, record: StackRecord) -> None:
        write_file(self._applied, msgspec.json.encode(record))

    def read_shapes(self) -> dict[str, Shape]:
        """Recorded shapes by container id."""
        try:
            return msgspec.json.decode(self._shapes.read_bytes(), type=dict[str, Shape])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}  # recorded again from the running containers

    def write_shapes(self, shapes: Mapping[str, Shape]) -> None:
        """Raises OSError."""
        write_file(self._shapes, msgspec.json.encode(shapes))

    def discard(self, *, keeps_data: bool) -> None:
        """Remove the directory. Files that services wrote to the checkout are data and may be kept."""
        record = self.read_applied() or self.read_planned()
        if not keeps_data or record is None or not record.source_has_data:
            shutil.rmtree(self.root, ignore_errors=True)
            return
        for path in self.root.iterdir():
            if path != self.source:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _read(path: Path) -> StackRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=StackRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None  # it is created again, which restarts no unchanged service
