"""One control group per stack, which limits its containers together: cpu, memory and processes.

Docker makes the groups of containers below the one that `cgroup_parent` names. The group of the stack is made
and limited here, in both versions of cgroups: through the file system where Docker does that itself, through
systemd where Docker's driver is systemd. What would surprise: after a reboot Docker starts containers by
itself and makes that group without limits, so they are compared at every look and written again.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from persys.agent.commands import run
from persys.agent.runtimes.docker_engine import Engine, EngineError, understood
from persys.agent.runtimes.docker_form import Owner
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.mount_table import read_mount_table
from persys.model.ids import WorkloadId
from persys.model.spec import ComposeSpec

log = structlog.get_logger()

ROOT = Path("/sys/fs/cgroup")
_GROUP = "persys"
_CONTROLLERS = ("cpu", "memory", "pids")
_PERIOD_MICROSECONDS = 100_000
_QUOTA_LEAST = 1000
_UNLIMITED_FROM = 1 << 60  # what version 1 shows for a memory limit that is not set
_SYSTEMD_SECONDS = 20.0
_OF_CONTAINERS = ("overlay", "fuse-overlayfs")
_SYSTEMCTL = "systemctl"


class StackLimits(NamedTuple):
    """0: no limit."""

    cpu_millicores: int = 0
    memory_mb: int = 0
    pids: int = 0


def limits_of(spec: ComposeSpec, pids: int) -> StackLimits:
    """What `resources` says. What was only read from the file is the sum of limits of single services:
    Compose enforces those, and services without a limit of their own are not to share them."""
    reserved, read = spec.reserved, spec.needs
    return StackLimits(
        reserved.cpu_millicores if reserved.cpu_millicores != read.cpu_millicores else 0,
        reserved.memory_mb if reserved.memory_mb != read.memory_mb else 0,
        pids,
    )


class FileCgroups:
    """Groups through the file system. All methods but `parent` and `place` block and raise OSError."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        self._is_unified = (root / "cgroup.controllers").exists()

    def parent(self, name: str) -> str:
        return f"/{_GROUP}/{name}"

    def place(self, name: str, container_id: str) -> str:
        """Where the group of a container is, below each controller."""
        return f"{_GROUP}/{name}/{container_id}"

    def limit(self, name: str, limits: StackLimits) -> None:
        if self._is_unified:
            self._limit_unified(name, limits)
        else:
            self._limit_separate(name, limits)

    def remove(self, name: str) -> None:
        """A group in which something still runs stays."""
        for controller in [""] if self._is_unified else self._controllers():
            with suppress(OSError):
                (self._root / controller / _GROUP / name).rmdir()

    def _controllers(self) -> Iterator[str]:
        """Docker makes the group in every one of them."""
        return (path.name for path in self._root.iterdir() if path.is_dir())

    def _limit_separate(self, name: str, limits: StackLimits) -> None:
        groups = {one: self._root / one / _GROUP / name for one in _CONTROLLERS}
        for group in groups.values():
            group.mkdir(parents=True, exist_ok=True)
        quota = _quota(limits)
        _put(groups["cpu"] / "cpu.cfs_period_us", str(_PERIOD_MICROSECONDS))
        _put(groups["cpu"] / "cpu.cfs_quota_us", str(quota or -1))
        _put(groups["pids"] / "pids.max", str(limits.pids or "max"))
        self._limit_memory(groups["memory"], limits.memory_mb << 20 or -1)

    def _limit_memory(self, group: Path, wanted: int) -> None:
        """Memory with swap may never be less than memory alone, so the order depends on the direction."""
        files = [group / "memory.limit_in_bytes", group / "memory.memsw.limit_in_bytes"]
        there = [file for file in files if file.exists()]
        before = int(there[0].read_text()) if there else 0
        unlimited = wanted < 0 and before >= _UNLIMITED_FROM
        if unlimited or before == wanted:
            return
        raises = wanted < 0 or wanted > before
        for file in reversed(there) if raises else there:
            file.write_text(str(wanted))

    def _limit_unified(self, name: str, limits: StackLimits) -> None:
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
    """Slices of systemd, which alone may change groups where Docker's driver is systemd."""

    def slice(self, name: str) -> str:
        # A dash in the name of a slice would be a level of its own.
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
    """How the groups of this Docker are made; a text says why they cannot be."""
    if contained:
        return "the agent runs in a container and has no access to the control groups of its host"
    match info.get("CgroupDriver"):
        case "cgroupfs":
            return FileCgroups()
        case "systemd" if has_systemd:
            return SystemdCgroups()
        case other:
            return f"cgroup driver {other!r} is not supported here"


class StackCgroups:
    """The group of each stack of this agent."""

    def __init__(self, engine: Engine, owner: Owner, paths: PathCalls) -> None:
        self._engine = engine
        self._owner = owner
        self._paths = paths
        self._driver: Driver | str | None = None
        self._set: dict[WorkloadId, StackLimits] = {}
        self._problems: dict[WorkloadId, str] = {}

    async def parent(self, workload_id: WorkloadId) -> str:
        """What containers of the stack have as `cgroup_parent`; "" where there are no such groups."""
        driver = await self._find_driver()
        return "" if isinstance(driver, str) else driver.parent(self._owner.name(workload_id))

    async def limit(self, workload_id: WorkloadId, limits: StackLimits) -> None:
        """Set the limits. What cannot be set is told by `problem`: the stack runs, with less comfort."""
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
        """Why the limits of a stack are not enforced; "" if they are."""
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
        """Asked once. Raises RuntimeUnavailableError."""
        if self._driver is None:
            try:
                info = await self._engine.call("GET", "info")
            except EngineError as err:
                raise RuntimeUnavailableError(f"docker info: {err.message}") from err
            contained = any(
                one.mount_point == "/" and one.fs_type in _OF_CONTAINERS
                for one in read_mount_table()
            )
            with understood("itself"):
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


async def _command(words: Sequence[str]) -> str:
    environ = {"PATH": os.environ.get("PATH", "")}
    try:
        ran = await run(words, env=environ, deadline=_SYSTEMD_SECONDS)
    except (TimeoutError, OSError) as err:
        return f"{words[0]}: {err or 'no answer'}"
    return "" if ran.ok else " ".join(ran.err.split())


def _quota(limits: StackLimits) -> int:
    """Microseconds of each period; 0: no limit. The kernel takes no fewer than a thousand."""
    wanted = limits.cpu_millicores * _PERIOD_MICROSECONDS // 1000
    return max(wanted, _QUOTA_LEAST) if wanted else 0


def _put(file: Path, value: str) -> None:
    """Only what differs is written."""
    if " ".join(file.read_text().split()) != value:
        file.write_text(value)
