"""Small files of containers: <root>/<workload id>/<number>, bound read-only at their paths.

They are on the disk, open to nobody else, so that Docker may start a container before the agent is there.
What would surprise: a start only puts back what is missing. Made anew they are only with their container, so
that what runs keeps the values it began with.
"""

import shutil
from pathlib import Path

from persys.core.secrets import PLAIN_MODE, SECRET_MODE
from persys.infra.files import write_whole
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.spec import ContainerSpec, FileMount

_PRIVATE = 0o700


class ContainerFiles:
    """All methods but `paths` and `place` block."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def paths(self, order: Order) -> dict[str, Path]:
        """Where each file is, by its path in the container."""
        place = self.place(order.workload_id)
        return {file.path: place / str(index) for index, file in enumerate(_files(order))}

    def write(self, order: Order) -> None:
        """All of them, anew. Raises OSError."""
        self.remove(order.workload_id)
        self.restore(order)

    def restore(self, order: Order) -> None:
        """Those that are missing. Raises OSError."""
        files = _files(order)
        if not files:
            return
        place = self.place(order.workload_id)
        for directory in (self.root, place):
            directory.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
            directory.chmod(_PRIVATE)
        for file, path in zip(files, self.paths(order).values(), strict=True):
            if not path.is_file():
                write_whole(path, file.content, mode=_mode(file))

    def remove(self, workload_id: WorkloadId) -> None:
        """Raises OSError."""
        place = self.place(workload_id)
        if place.exists():
            shutil.rmtree(place)

    def owners(self) -> dict[WorkloadId, Path]:
        """Whose files are here. Raises OSError."""
        if not self.root.is_dir():
            return {}
        return {WorkloadId(place.name): place for place in sorted(self.root.iterdir())}

    def place(self, workload_id: WorkloadId) -> Path:
        return self.root / workload_id


def _files(order: Order) -> tuple[FileMount, ...]:
    return order.spec.files if isinstance(order.spec, ContainerSpec) else ()


def _mode(file: FileMount) -> int:
    return file.mode or (SECRET_MODE if file.secret else PLAIN_MODE)
