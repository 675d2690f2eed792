"""The runtimes and volumes of one node, behind the ports of the agent."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from random import Random
from typing import cast

from persys.agent.credentials import Credentials
from persys.agent.ports import PullWatch
from persys.agent.runtimes.docker.engine import Engine
from persys.agent.runtimes.docker.pull import Puller
from persys.agent.workloads.steps import volumes_of
from persys.core.agent.progress import Artefact
from persys.errors import ConflictError, NotFoundError, RuntimeUnavailableError
from persys.infra.aio.path_calls import DirectPathCalls
from persys.model.ids import WorkloadId
from persys.model.node import VolumeView
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.status import Failure, FailureReason
from persys.model.workload import Order
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import INJECTED
from persys.sim.fakes.docker import Container, Docker, Observer, behaviour_of
from persys.sim.fakes.engine_faults import RuntimeCalls, RuntimeFaults, SimEngine
from persys.sim.fakes.journal_disk import Disk, Part

STEP_SECONDS = (0.002, 0.15)
STOP_SECONDS = (0.05, 10.0)
LOOK_SECONDS = (0.001, 0.01)
UNREADABLE = "/unreadable/"


class SimRuntime:
    """Implements agent.ports.Runtime."""

    def __init__(
        self,
        docker: Docker,
        process: SimProcess,
        faults: RuntimeFaults,
        random: Random,
        observer: Observer,
        silent_registries: set[str],
    ) -> None:
        self._docker = docker
        self._observer = observer
        self._process = process
        self._calls = calls = RuntimeCalls(process, faults, random)
        engine = cast("Engine", SimEngine(docker, calls, silent_registries))
        self._puller = Puller(engine, Credentials(Path("/credentials")), DirectPathCalls())

    async def inspect(self, order: Order) -> Artefact | None:
        await self._calls.reach("inspect", LOOK_SECONDS)
        found = self._docker.containers.get(order.workload_id)
        await self._calls.answer("inspect")
        return found.artefact() if found is not None else None

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        return await self._puller.pull(behaviour_of(order.spec), watch)

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        await self._calls.reach("create", STEP_SECONDS)
        _examine_binds(order)
        found = self._docker.containers.get(order.workload_id)
        if found is not None and order.type is not WorkloadType.COMPOSE:
            raise ConflictError("the container already exists")
        if failure := self._error(FailureReason.RUNTIME_ERROR):
            return failure
        if found is not None:
            self._docker.remove(found, order)  # a stack is updated in place
        self._docker.create(order)
        await self._calls.answer("create")
        return None

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        self._observer.start_requested(self._docker.node_id, order)
        await self._calls.reach("start", STEP_SECONDS)
        container = self._same(order, artefact)
        if container is None:
            raise ConflictError("the container no longer exists")
        if container.condition.active:
            return None
        if (port := self._docker.port_conflict(container)) is not None:
            text = f"host port {port} is already in use on this node"
            return Failure(FailureReason.NETWORK_ERROR, text, code="PortTaken")
        if failure := self._error(FailureReason.RUNTIME_ERROR):
            return failure
        self._docker.start(container)
        await self._calls.answer("start")
        return None

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        self._observer.stop_requested(self._docker.node_id, order, artefact.id)
        await self._calls.reach("stop", STOP_SECONDS)
        container = self._same(order, artefact)
        if container is not None:
            self._docker.stop(container, order)
        await self._calls.answer("stop")
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        await self._calls.reach("remove", STEP_SECONDS)
        container = self._same(order, artefact)
        if container is not None:
            self._docker.remove(container, order)
        await self._calls.answer("remove")
        return None

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        return None  # simulated containers are changed only by their agent

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        return await self.stop(order, artefact) or await self.remove(order, artefact)

    async def discard(self, order: Order) -> Failure | None:
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        await self._process.gate("runtime")
        return ""

    async def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        await self._calls.reach("listen", LOOK_SECONDS)
        changed_ids: asyncio.Queue[WorkloadId | None] = asyncio.Queue()
        self._docker.listeners.append(changed_ids.put_nowait)
        try:
            yield None
            while (workload_id := await changed_ids.get()) is not None:
                await self._process.gate("runtime")
                yield workload_id
        finally:
            if changed_ids.put_nowait in self._docker.listeners:
                self._docker.listeners.remove(changed_ids.put_nowait)
        raise RuntimeUnavailableError("the event stream was lost")

    async def ping(self) -> None:
        await self._calls.reach("ping", LOOK_SECONDS)

    def _error(self, reason: FailureReason) -> Failure | None:
        return Failure(reason, "docker returned status 500") if self._calls.fails() else None

    def _same(self, order: Order, artefact: Artefact) -> Container | None:
        found = self._docker.containers.get(order.workload_id)
        return found if found is not None and found.id == artefact.id else None


def _examine_binds(order: Order) -> None:
    """Raises OSError for an unreadable bind source."""
    if isinstance(order.spec, ContainerSpec):
        for mount in order.spec.volumes:
            if mount.host_path.startswith(UNREADABLE):
                raise OSError(errno.EIO, f"Input/output error ({INJECTED})", mount.host_path)


class SimVolumes:
    """Implements agent.ports.Volumes."""

    def __init__(
        self, docker: Docker, disk: Disk, process: SimProcess, observer: Observer, random: Random
    ) -> None:
        self._docker = docker
        self._disk = disk
        self._process = process
        self._observer = observer
        self._random = random

    drivers = frozenset({"local"})

    async def check(self, order: Order) -> None:
        """Volume requests of the simulation are always valid."""

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        return Path("/volumes") / workload_id / name

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        return self.path(workload_id, name)

    async def release(self, workload_id: WorkloadId) -> None:
        """Nothing is mounted in the simulation."""

    async def inventory(self) -> list[VolumeView]:
        return []

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        raise NotFoundError("volume", f"{workload_id}/{name}")

    async def prepare(self, order: Order) -> Failure | None:
        await self._pause()
        for name in volumes_of(order.spec):
            self._docker.volumes.add((order.workload_id, name))
        return None

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        await self._pause()
        here = frozenset(name for name in names if (workload_id, name) in self._docker.volumes)
        if here:
            self._observer.volumes_go(self._docker.node_id, workload_id, here)
        self._docker.volumes -= {(workload_id, name) for name in names}
        await self._process.gate("volumes.done")
        return None

    async def _pause(self) -> None:
        await self._process.gate("volumes")
        await asyncio.sleep(self._random.uniform(*STEP_SECONDS))
        await self._process.gate("volumes")
        self._disk.check(Part.VOLUMES)
