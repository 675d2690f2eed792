"""A whole agent in virtual time on drivers that can fail: real code from the API to the drivers."""

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, NoReturn, TypeVar

import aiodocker
import pytest
import structlog

from faults.injection import Injector
from faults.memory_docker import MemoryDocker, client_of
from faults.memory_libvirt import MemoryLibvirt, module_of, threads_of
from faults.programs import Programs, install
from faults.sites import PROGRAMS, all_sites
from faults.virtual_loop import Command, ProgramLoop, kill_group
from faults.virtual_paths import VirtualPathCalls
from persys.agent.api.service import AgentApi
from persys.agent.api.tunnel_server import AbortedError, TunnelContext
from persys.agent.app import Agent
from persys.agent.components import Environment
from persys.agent.journal.records import ReportedStatus
from persys.agent.journal.store import Journal
from persys.agent.runtimes.detect import Detector
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.vm import kvm, libvirt
from persys.agent.runtimes.vm import libvirt as vm_libvirt
from persys.agent.settings import AgentSettings
from persys.agent.uplink.heartbeat import PendingReports
from persys.agent.volumes.detect import detect_drivers
from persys.agent.volumes.filesystems import Mounted
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.programs import Programs as VolumePrograms
from persys.agent.volumes.registry import VolumeRegistry
from persys.infra.libvirt_binding import find_binding
from persys.infra.process import serve
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Actual
from persys.sim.engine.hardware import Hardware, WallClock
from persys.wire.gen.agent.v1 import agent_pb2

T = TypeVar("T")
NODE = NodeId("n1")
LOOK_SECONDS = 0.5
TRACEBACK_END = 200


class InlineThread(Executor):
    """In place of the journal's thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as err:  # noqa: BLE001  # as a thread does
            done.set_exception(err)
        return done


class World:
    """The environment of the agent, which outlives it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tracebacks: deque[str] = deque(maxlen=20)  # in the log
        self.injector = Injector({str(site): site for site in all_sites()})
        self.docker = MemoryDocker()
        self.libvirt = MemoryLibvirt()
        self.programs = Programs(self.docker)
        self.paths = VirtualPathCalls(self.injector)
        self.paths.tables |= {
            "mounted_at": self._mounted_at,
            "backing_file": lambda device: device,
            "_is_behind_a_device": lambda file: file in self.programs.mounts.values(),
            "_reserve": _reserve,
            "extend": _reserve,
            "swapped": lambda _held, _pid: "",
        }
        self.settings = _settings(directory)

    def _mounted_at(self, path: Path) -> Mounted | None:
        source = self.programs.mounts.get(str(path))
        return Mounted(source, "ext4") if source is not None else None

    def start_program(self, command: Command) -> str:
        kind = self.injector.fault_of(PROGRAMS, command.words)
        self.injector.raise_if(kind)
        self.injector.raise_afterwards_if(kind)
        return kind

    def removed(self) -> list[str]:
        return self.docker.removed + self.libvirt.removed


def _reserve(file: Path, size: int) -> None:
    """A sparse file of that size."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        opened.truncate(size)


def _settings(directory: Path) -> AgentSettings:
    return replace(
        AgentSettings(),
        standalone=True,
        insecure=True,
        state_path=directory / "state" / "state.db",
        storage_local_root=directory / "volumes",
        vm_images_dir=directory / "images",
        vm_disks_dir=directory / "disks",
        vm_dir=directory / "vms",
        storage_nfs_server="files.example",
        storage_nfs_export="/srv",
        storage_nfs_stage_dir=directory / "nfs",
        storage_ceph_pool="rbd",
        storage_ceph_stage_dir=directory / "ceph",
        gc_interval=timedelta(seconds=40),
        gc_zombie_after=timedelta(seconds=10),
        gc_image_after=timedelta(days=30),
        credentials_dir=directory / "credentials",
        bind_roots=(str(directory / "binds"),),
        reconcile_interval=timedelta(seconds=30),
        admission_cpu_percent=1000,
        admission_memory_percent=1000,
        admission_disk_percent=1000,
    )


class RunningAgent:
    """A running agent, used through its service."""

    def __init__(
        self, world: World, agent: Agent, journal: Journal, serving: "asyncio.Task[None]"
    ) -> None:
        self.world = world
        self.agent = agent
        self.journal = journal
        self.serving = serving
        self.api: AgentApi = agent.api

    async def apply(self, request: agent_pb2.ApplyWorkloadRequest) -> bool:
        """Whether it is accepted."""
        with suppress(AbortedError):
            async with asyncio.timeout(60):
                response = await self.api.ApplyWorkload(request, a_context())
            return bool(response.applied or response.skipped)
        return False

    async def delete(self, name: str) -> bool:
        with suppress(AbortedError):
            async with asyncio.timeout(60):
                await self.api.DeleteWorkload(agent_pb2.DeleteWorkloadRequest(id=name), a_context())
            return True
        return False

    def status(self, name: str) -> ReportedStatus | None:
        entry = self.journal.entries.get(WorkloadId(name))
        return entry.status if entry is not None else None

    def actual(self, name: str) -> Actual | None:
        status = self.status(name)
        return status.actual if status is not None else None

    @property
    def errors(self) -> list[str]:
        return [
            f"{error.where} {error.key}: {error.text}" for error in self.agent.supervisor.recent()
        ]

    async def until(self, holds: Callable[[], bool], what: str, *, within: float) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + within
        while not holds():
            assert not self.serving.done(), f"the agent has ended: {self.serving}"
            assert now() < deadline, (
                f"not within {within:g} s: {what}; "
                f"{ {name: entry.status for name, entry in self.journal.entries.items()} }; {self.errors}"
            )
            await asyncio.sleep(LOOK_SECONDS)


def a_context() -> Any:
    async def write(_message: object) -> None: ...

    return TunnelContext({}, write)


@asynccontextmanager
async def a_running_agent(world: World) -> AsyncIterator[RunningAgent]:
    settings, owner, clock, pending_reports = (
        world.settings,
        OwnerLabels("default", NODE),
        WallClock(),
        PendingReports(),
    )
    read = clock.as_read()
    journal = Journal(
        settings.state_path, cluster_id="default", node_id=NODE, thread=InlineThread()
    )
    volume_registry = VolumeRegistry(journal)
    detector = Detector(
        settings, owner, journal, read, world.paths, images_changed=pending_reports.add_node
    )
    drivers = detect_drivers(
        settings, volume_registry, VolumePrograms(os.environ["PATH"]), world.paths
    )
    environment = Environment(
        journal=journal,
        runtimes=detector.found,
        volumes=ManagedVolumes(drivers, volume_registry, read, world.paths),
        host=Hardware(cpu_millicores=8000, memory_mb=16384, disk_gb=100),
        clock=read,
        paths=world.paths,
        connect=None,
        random=Random(1),
        pending_reports=pending_reports,
        detect=detector.detect,
        boot_id="b1",
    )
    agent = Agent(settings, NODE, environment)
    try:
        await agent._detect_first()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(serve(agent.parts(1), asyncio.Event()))
            await asyncio.sleep(0.1)
            yield RunningAgent(world, agent, journal, serving)
            serving.cancel()
    finally:
        world.injector.is_ending = True
        await detector.close()
        journal.close()


def run_in(world: World, test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test in virtual time with this environment."""
    loop = ProgramLoop(world.programs.run, world.start_program)
    real = vm_libvirt.load()
    module, connection = module_of(world.libvirt, real)
    with (
        pytest.MonkeyPatch.context() as patched,
        _quiet(world.tracebacks),
        _fresh_libvirt(),
    ):
        patched.setenv("PATH", install(world.directory / "bin"))
        patched.setattr(kvm, "DEVICE", Path("/dev/null"))
        patched.setattr(aiodocker, "Docker", client_of(world.docker, world.injector))
        patched.setattr(os, "killpg", kill_group(loop))
        patched.setitem(sys.modules, "libvirt", module)
        patched.setattr(threading, "Thread", threads_of(world.injector, connection))
        try:
            return loop.run_until_complete(test())
        finally:
            loop.close()


@contextmanager
def _quiet(tracebacks: deque[str]) -> Iterator[None]:
    """No logs, except the ends of the tracebacks of unexpected exceptions."""

    def take(_logger: object, _level: str, line: MutableMapping[str, Any]) -> NoReturn:
        if line["event"] == "internal_error":
            tracebacks.append(line["exception"][-TRACEBACK_END:])
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take])
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _fresh_libvirt() -> Iterator[None]:
    """Reset the module that the agent has loaded."""
    for remembered in (vm_libvirt.load, find_binding, libvirt._run_events):
        remembered.cache_clear()
    try:
        yield
    finally:
        for remembered in (vm_libvirt.load, find_binding, libvirt._run_events):
            remembered.cache_clear()
