"""One cgroup per stack that limits CPU, memory and processes of all its containers together.

Docker creates the cgroups of containers below `cgroup_parent`. The cgroup of the stack is created and limited
here, for cgroup v1 and v2: through the file system with the cgroupfs driver, through systemd with the systemd
driver. After a reboot Docker starts containers on its own and creates the stack's cgroup without limits, so
the limits are compared and written again at every inspection.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from persys.agent.runtimes.docker.engine import Engine, EngineError, parsing_response
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.mount_table import read_mount_table
from persys.infra.subprocesses import run
from persys.model.ids import WorkloadId
from persys.model.spec import ComposeSpec

log = structlog.get_logger()

ROOT = Path("/sys/fs/cgroup")
_GROUP = "persys"
_CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD_MICROSECONDS = 100_000
_QUOTA_MIN = 1000
_UNLIMITED_FROM = 1 << 60  # cgroup v1 shows at least this if no memory limit is set
_SYSTEMD_SECONDS = 20.0
_OF_CONTAINERS = ("overlay", "fuse-overlayfs")
_SYSTEMCTL = "systemctl"


class StackLimits(NamedTuple):
    """0: no limit."""

    cpu_millicores: int = 0
    memory_mb: int = 0
    pids: int = 0


def limits_of(spec: ComposeSpec, pids: int) -> StackLimits:
    """The limits of `resources`.

    Values derived from the Compose file are the sum of the services' own limits. Compose enforces those, and
    services without a limit must not share them.
    """
    reserved, read = spec.reserved, spec.needs
    return StackLimits(
        reserved.cpu_millicores if reserved.cpu_millicores != read.cpu_millicores else 0,
        reserved.memory_mb if reserved.memory_mb != read.memory_mb else 0,
        pids,
    )


class FileCgroups:
    """Cgroups through the file system. Methods except `parent` and `place` block and raise OSError."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._is_v2 = (root / "cgroup.controllers").exists()

    def parent(self, name: str) -> str:
        return f"/{_GROUP}/{name}"

    def place(self, name: str, container_id: str) -> str:
        """The path of a container's cgroup below each controller."""
        return f"{_GROUP}/{name}/{container_id}"

    def limit(self, name: str, limits: StackLimits) -> None:
        if self._is_v2:
            self._limit_v2(name, limits)
        else:
            self._limit_v1(name, limits)

    def remove(self, name: str) -> None:
        """Remove the cgroup. It stays while a process runs in it."""
        for controller in [""] if self._is_v2 else self._controllers():
            with suppress(OSError):
                (self._root / controller / _GROUP / name).rmdir()

    def _controllers(self) -> Iterator[str]:
        """Docker creates the cgroup in every controller."""
        return (path.name for path in self._root.iterdir() if path.is_dir())

    def _limit_v1(self, name: str, limits: StackLimits) -> None:
        groups = {one: self._root / one / _GROUP / name for one in _CONTROLLERS}
        for group in groups.values():
            group.mkdir(parents=True, exist_ok=True)
        quota = _quota(limits)
        _put(groups["cpu"] / "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
        _put(groups["cpu"] / "cpu.cfs_quota_us", str(quota or -1))
        _put(groups["pids"] / "pids.max", str(limits.pids or "max"))
        self._limit_memory(groups["memory"], limits.memory_mb << 20 or -1)

    def _limit_memory(self, group: Path, wanted: int) -> None:
        """Write both limits in an order that keeps memory with swap at or above memory alone."""
        files = [group / "memory.limit_in_bytes", group / "memory.memsw.limit_in_bytes"]
        present = [file for file in files if file.exists()]
        before = int(present[0].read_text()) if present else 0
        unlimited = wanted < 0 and before >= _UNLIMITED_FROM
        if unlimited or before == wanted:
            return
        raises = wanted < 0 or wanted > before
        for file in reversed(present) if raises else present:
            file.write_text(str(wanted))

    def _limit_v2(self, name: str, limits: StackLimits) -> None:
        group = self._root / _GROUP / name
        group.mkdir(parents=True, exist_ok=True)
        for above in (self._root, self._root / _GROUP):
            control = above / "cgroup.subtree_control"
            missing = set(_CONTROLLERS) - set(control.read_text().split())
            if missing:
                control.write_text(" ".join(f"+{one}" for one in sorted(missing)))
        quota = _quota(limits)
        _put(group / "cpu.max", f"{quota or 'max'} {_PERIOD_MICROSECONDS}")
        _put(group / "memory.max", str(limits.memory_mb << 20 or "max"))
        if (group / "memory.swap.max").exists():
            _put(group / "memory.swap.max", "0" if limits.memory_mb else "max")
        _put(group / "pids.max", str(limits.pids or "max"))


class SystemdCgroups:
    """Cgroups as systemd slices: with the systemd driver, only systemd may change cgroups."""

    def slice(self, name: str) -> str:
        # A dash in a slice name adds a level.
        return f"{_GROUP}-{name.replace('-', '_')}.slice"

    def parent(self, name: str) -> str:
        return self.slice(name)

    def place(self, name: str, container_id: str) -> str:
        return f"{_GROUP}.slice/{self.slice(name)}/docker-{container_id}.scope"

    def limit_command(self, name: str, limits: StackLimits) -> list[str]:
        memory = f"{limits.memory_mb << 20}" if limits.memory_mb else "infinity"
        return [
            _SYSTEMCTL,
            "set-property",
            "--runtime",
            self.slice(name),
            f"CPUQuota={limits.cpu_millicores / 10:g}%" if limits.cpu_millicores else "CPUQuota=",
            f"MemoryMax={memory}",
            f"MemorySwapMax={'0' if limits.memory_mb else 'infinity'}",
            f"TasksMax={limits.pids or 'infinity'}",
        ]

    def remove_command(self, name: str) -> list[str]:
        return [_SYSTEMCTL, "revert", self.slice(name)]


Driver = FileCgroups | SystemdCgroups


def driver_of(info: Mapping[str, object], *, contained: bool, has_systemd: bool) -> Driver | str:
    """The driver that matches this Docker, or the reason why limits are not possible."""
    if contained:
        return "the agent runs in a container and has no access to the host's cgroups"
    match info.get("CgroupDriver"):
        case "cgroupfs":
            return FileCgroups()
        case "systemd" if has_systemd:
            return SystemdCgroups()
        case other:
            return f"cgroup driver {other!r} is not supported on this node"


class StackCgroups:
    """Sets and checks the cgroup limits of each stack."""

    def __init__(self, engine: Engine, owner: OwnerLabels, paths: PathCalls) -> None:
        self._engine = engine
        self._owner = owner
        self._paths = paths
        self._driver: Driver | str | None = None
        self._set: dict[WorkloadId, StackLimits] = {}
        self._problems: dict[WorkloadId, str] = {}

    async def parent(self, workload_id: WorkloadId) -> str:
        """The `cgroup_parent` of the stack's containers; "" if stack cgroups are not supported."""
        driver = await self._find_driver()
        return "" if isinstance(driver, str) else driver.parent(self._owner.name(workload_id))

    async def limit(self, workload_id: WorkloadId, limits: StackLimits) -> None:
        """Set the limits. If that fails, the stack runs without them and `problem` returns the reason."""
        driver, name = await self._find_driver(), self._owner.name(workload_id)
        problem = ""
        match driver:
            case FileCgroups():
                problem = await self._call(partial(driver.limit, name, limits))
            case SystemdCgroups() if self._set.get(workload_id) != limits:
                problem = await _command(driver.limit_command(name, limits))
            case str():
                problem = driver if limits.cpu_millicores or limits.memory_mb else ""
        if problem and self._problems.get(workload_id) != problem:
            log.warning("stack.limits_not_set", workload_id=workload_id, reason=problem)
        self._problems[workload_id] = problem
        if not problem:
            self._set[workload_id] = limits

    def problem(self, workload_id: WorkloadId) -> str:
        """Why the limits of the stack are not enforced, or ""."""
        return self._problems.get(workload_id, "")

    async def remove(self, workload_id: WorkloadId) -> None:
        driver, name = await self._find_driver(), self._owner.name(workload_id)
        self._set.pop(workload_id, None)
        self._problems.pop(workload_id, None)
        match driver:
            case FileCgroups():
                await self._call(partial(driver.remove, name))
            case SystemdCgroups():
                await _command(driver.remove_command(name))

    async def _find_driver(self) -> Driver | str:
        """Read from Docker once and cached. Raises RuntimeUnavailableError."""
        if self._driver is None:
            try:
                info = await self._engine.call("GET", "info")
            except EngineError as err:
                raise RuntimeUnavailableError(f"docker info: {err.message}") from err
            contained = any(
                one.mount_point == "/" and one.fs_type in _OF_CONTAINERS
                for one in read_mount_table()
            )
            with parsing_response("itself"):
                self._driver = driver_of(
                    info, contained=contained, has_systemd=shutil.which(_SYSTEMCTL) is not None
                )
        return self._driver

    async def _call(self, call: Callable[[], None]) -> str:
        try:
            await self._paths.run(ROOT, call)
        except OSError as err:
            return f"{err.filename}: {err.strerror}"
        return ""


async def _command(command: Sequence[str]) -> str:
    environ = {"PATH": os.environ.get("PATH", "")}
    try:
        ran = await run(command, env=environ, deadline=_SYSTEMD_SECONDS)
    except (TimeoutError, OSError) as err:
        return f"{command[0]}: {err or 'no response'}"
    return "" if ran.ok else " ".join(ran.err.split())


def _quota(limits: StackLimits) -> int:
    """Microseconds per period, 0 for no limit. The kernel requires at least 1000."""
    wanted = limits.cpu_millicores * _PERIOD_MICROSECONDS // 1000
    return max(wanted, _QUOTA_MIN) if wanted else 0


def _put(file: Path, value: str) -> None:
    """Write the value if it differs."""
    if " ".join(file.read_text().split()) != value:
        file.write_text(value)
