"""Files that a container spec defines: <root>/<workload id>/<number>, bind-mounted read-only at their paths.

Plain files are on disk, so that Docker can start a container before the agent runs. Secret values are in a
directory in memory, and the path on disk is a symbolic link to them: after a reboot the agent restores them
from its journal and starts the container. A start only restores missing files. Existing files are replaced
only together with their container, so that a running container keeps the values it was started with.
"""

import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import structlog

from persys.core.secrets import PLAIN_MODE, SECRET_MODE
from persys.infra.atomic_files import write_file
from persys.infra.mount_table import MountEntry, read_mount_table
from persys.model.ids import WorkloadId
from persys.model.spec import ContainerSpec, FileMount
from persys.model.workload import Order

log = structlog.get_logger()

_PRIVATE = 0o700
_IN_MEMORY = ("tmpfs", "ramfs")
_CANDIDATES = (Path("/run/persys"), Path("/dev/shm/persys"))  # noqa: S108  # private directories
_OF_CONTAINERS = ("overlay", "fuse-overlayfs")


def memory_directory(configured: str, mounts: Iterable[MountEntry]) -> Path | None:
    """A directory in memory that Docker sees under the same path. None: there is no such directory.

    An agent that runs in a container shares only its mounted directories with Docker.
    """
    if configured:
        return Path(configured)
    table = list(mounts)
    contained = any(one.mount_point == "/" and one.fs_type in _OF_CONTAINERS for one in table)
    for path in _CANDIDATES:
        holding = max(
            (one for one in table if path.is_relative_to(one.mount_point)),
            key=lambda one: len(one.mount_point),
            default=None,
        )
        if holding is None or holding.fs_type not in _IN_MEMORY:
            continue
        if not contained or holding.mount_point == str(path):
            return path
    return None


def find_memory_directory(configured: str) -> Path | None:
    found = memory_directory(configured, read_mount_table())
    if found is None:
        log.warning("secret_files.on_disk", reason="no tmpfs directory is shared with Docker")
    return found


class ContainerFiles:
    """All methods block, except `paths`, `directory` and `may_have`. They may run in several threads."""

    def __init__(self, root: Path, memory: Path | None) -> None:
        """`memory`: the directory in memory for secret values; None: they are stored on disk."""
        self.root = root.absolute()
        self._memory = memory
        self._lock = threading.Lock()
        # Workloads that may have files; None: not listed yet.
        self._owners: set[str] | None = None

    def paths(self, order: Order) -> dict[str, Path]:
        """The path of each file on the host, by its path in the container."""
        directory = self.directory(order.workload_id)
        return {file.path: directory / str(index) for index, file in enumerate(_files(order))}

    def may_have(self, order: Order) -> bool:
        """Whether the order has files, or files of an earlier order may be left."""
        return bool(_files(order)) or self._owners is None or order.workload_id in self._owners

    def write(self, order: Order) -> None:
        """Replace all files of the workload. Raises OSError."""
        self._note(order.workload_id)
        self.remove(order.workload_id)
        self.restore(order)

    def restore(self, order: Order) -> None:
        """Write the files that are missing. Raises OSError."""
        files = _files(order)
        if not files:
            return
        self._note(order.workload_id)
        for directory in (self.root, self.directory(order.workload_id)):
            _make_private(directory)
        for file, path in zip(files, self.paths(order).values(), strict=True):
            if path.is_file():
                continue
            if file.secret and self._memory is not None:
                self._write_in_memory(order.workload_id, path, file.content, _mode(file))
            else:
                write_file(path, file.content, mode=_mode(file))

    def move_to_memory(self, orders: Iterable[Order]) -> None:
        """Move secret values that an older agent stored on disk. Running containers keep their files."""
        for order in orders if self._memory is not None else ():
            for file, path in zip(_files(order), self.paths(order).values(), strict=True):
                if not file.secret or path.is_symlink() or not path.is_file():
                    continue
                try:
                    content = path.read_bytes()
                    self._write_in_memory(order.workload_id, path, content, _mode(file))
                except OSError as err:
                    log.error("secret_files.not_moved", path=str(path), reason=str(err))

    def remove(self, workload_id: WorkloadId) -> None:
        """Raises OSError."""
        directories = [self.directory(workload_id)]
        if self._memory is not None:
            directories.append(self._in_memory(workload_id))
        for directory in directories:
            if directory.exists():
                shutil.rmtree(directory)
        with self._lock:
            if self._owners is not None:
                self._owners.discard(workload_id)

    def _note(self, workload_id: WorkloadId) -> None:
        """Remember that the workload may have files. Lists the files of all workloads once."""
        with self._lock:
            if self._owners is None:
                roots = [self.root]
                if self._memory is not None:
                    roots.append(self._in_memory(workload_id).parent)
                self._owners = {
                    each.name for root in roots if root.is_dir() for each in root.iterdir()
                }
            self._owners.add(workload_id)

    def owners(self) -> dict[WorkloadId, Path]:
        """The workloads that have files here. Raises OSError."""
        if not self.root.is_dir():
            return {}
        return {WorkloadId(directory.name): directory for directory in sorted(self.root.iterdir())}

    def directory(self, workload_id: WorkloadId) -> Path:
        return self.root / workload_id

    def _in_memory(self, workload_id: WorkloadId) -> Path:
        """Agents may share the directory, so the path below it repeats the path on disk."""
        assert self._memory is not None, "called only with a directory in memory"
        return self._memory / self.directory(workload_id).relative_to("/")

    def _write_in_memory(
        self, workload_id: WorkloadId, path: Path, content: bytes, mode: int
    ) -> None:
        assert self._memory is not None, "called only with a directory in memory"
        directory = self._in_memory(workload_id)
        _make_private(self._memory)
        _make_private(directory)
        target = directory / path.name
        write_file(target, content, mode=mode)
        link = path.with_name(f".{path.name}.link")
        with suppress(FileNotFoundError):
            link.unlink()
        link.symlink_to(target)
        link.replace(path)


def _make_private(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=_PRIVATE)
    directory.chmod(_PRIVATE)


def _files(order: Order) -> tuple[FileMount, ...]:
    return order.spec.files if isinstance(order.spec, ContainerSpec) else ()


def _mode(file: FileMount) -> int:
    return file.mode or (SECRET_MODE if file.secret else PLAIN_MODE)
