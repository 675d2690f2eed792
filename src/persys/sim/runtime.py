"""Docker and volumes as one agent reaches them: slow, in error, or giving no answer, as the faults say."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from persys.agent.ports import PullWatch
from persys.agent.steps import volumes_of
from persys.core.convergence import Artefact
from persys.errors import ConflictError, NotFoundError, RuntimeUnavailableError
from persys.model.failure import Failure, FailureReason
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.spec import WorkloadType
from persys.model.volume import VolumeSeen
from persys.sim.docker import Container, Docker, Witness, behaviour_of
from persys.sim.life import Life

DEED_SECONDS = (0.002, 0.15)
PULL_SECONDS = (0.3, 4.0)
STOP_SECONDS = (0.05, 10.0)
NO_ANSWER_SECONDS = 3.0
UNEXPECTED: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.ENOSPC, "No space left on device"),
    lambda: OSError(errno.ENAMETOOLONG, "File name too long"),
    lambda: RuntimeError("Symlink loop"),
    lambda: ValueError("embedded null byte"),
    MemoryError,
)


@dataclass(slots=True)
class RuntimeTrouble:
    """What ails Docker on one node now. All zero: nothing."""

    out: bool = False
    answers_lost: float = 0.0
    errors: float = 0.0
    os_errors: float = 0.0  # share of calls that raise an unexpected exception
    slowness: float = 1.0


class SimRuntime:
    """Implements agent.ports.Runtime."""

    def __init__(
        self,
        docker: Docker,
        life: Life,
        trouble: RuntimeTrouble,
        random: Random,
        witness: Witness,
    ) -> None:
        self._docker = docker
        self._witness = witness
        self._life = life
        self._trouble = trouble
        self._random = random

    async def inspect(self, workload_id: WorkloadId) -> Artefact | None:
        await self._reach("inspect", (0.001, 0.01))
        found = self._docker.containers.get(workload_id)
        await self._answer("inspect")
        return found.artefact() if found is not None else None

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        image = behaviour_of(order.spec).image
        if image in self._docker.images:
            await self._reach("pull", (0.001, 0.01))
            return None
        await self._reach("pull", PULL_SECONDS)
        if image.startswith("refused/"):
            return Failure(FailureReason.IMAGE_PULL_FAILED, "the registry says 503")
        if image.startswith("missing/"):
            text = f"no such image: {image}"
            return Failure(FailureReason.IMAGE_NOT_FOUND, text, retryable=False)
        if failure := self._error(FailureReason.IMAGE_PULL_FAILED):
            return failure
        self._docker.images.add(image)
        await self._answer("pull")
        return None

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        await self._reach("create", DEED_SECONDS)
        found = self._docker.containers.get(order.workload_id)
        if found is not None and order.type is not WorkloadType.COMPOSE:
            raise ConflictError("the container has appeared")
        if failure := self._error(FailureReason.RUNTIME_ERROR):
            return failure
        if found is not None:
            self._docker.remove(found, order)  # a stack is updated in place
        self._docker.create(order)
        await self._answer("create")
        return None

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        self._witness.start_asked(self._docker.node_id, order)
        await self._reach("start", DEED_SECONDS)
        container = self._same(order, artefact)
        if container is None:
            raise ConflictError("the container has gone")
        if container.condition.active:
            return None
        if (port := self._docker.port_taken(container)) is not None:
            text = f"host port {port} is taken on this node"
            return Failure(FailureReason.NETWORK_ERROR, text, code="PortTaken")
        if failure := self._error(FailureReason.RUNTIME_ERROR):
            return failure
        self._docker.start(container)
        await self._answer("start")
        return None

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        self._witness.stop_asked(self._docker.node_id, order, artefact.id)
        await self._reach("stop", STOP_SECONDS)
        container = self._same(order, artefact)
        if container is not None:
            self._docker.stop(container, order)
        await self._answer("stop")
        return None

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        await self._reach("remove", DEED_SECONDS)
        container = self._same(order, artefact)
        if container is not None:
            self._docker.remove(container, order)
        await self._answer("remove")
        return None

    async def discard(self, order: Order) -> Failure | None:
        return None

    async def log_tail(self, artefact: Artefact) -> str:
        await self._life.gate("runtime")
        return ""

    async def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        await self._reach("listen", (0.001, 0.01))
        heard: asyncio.Queue[WorkloadId | None] = asyncio.Queue()
        self._docker.listeners.append(heard.put_nowait)
        try:
            yield None
            while (workload_id := await heard.get()) is not None:
                await self._life.gate("runtime")
                yield workload_id
        finally:
            if heard.put_nowait in self._docker.listeners:
                self._docker.listeners.remove(heard.put_nowait)
        raise RuntimeUnavailableError("the stream of events broke")

    async def ping(self) -> None:
        await self._reach("ping", (0.001, 0.01))

    async def _reach(self, deed: str, span: tuple[float, float]) -> None:
        await self._life.gate(deed)
        await asyncio.sleep(self._random.uniform(*span) * self._trouble.slowness)
        await self._life.gate("runtime")
        if self._trouble.out:
            await asyncio.sleep(self._random.uniform(0, NO_ANSWER_SECONDS))
            raise RuntimeUnavailableError("docker gives no answer")
        if self._random.random() < self._trouble.os_errors:
            raise self._random.choice(UNEXPECTED)()

    async def _answer(self, deed: str) -> None:
        """It is done. Whether the agent hears of it is another matter."""
        await self._life.gate(f"{deed}.done")
        if self._random.random() < self._trouble.answers_lost:
            raise RuntimeUnavailableError("the answer of docker was lost")

    def _error(self, reason: FailureReason) -> Failure | None:
        if self._random.random() < self._trouble.errors:
            return Failure(reason, "docker says 500")
        return None

    def _same(self, order: Order, artefact: Artefact) -> Container | None:
        found = self._docker.containers.get(order.workload_id)
        return found if found is not None and found.id == artefact.id else None


class SimVolumes:
    """Implements agent.ports.Volumes."""

    def __init__(self, docker: Docker, life: Life, witness: Witness, random: Random) -> None:
        self._docker = docker
        self._life = life
        self._witness = witness
        self._random = random

    drivers = frozenset({"local"})

    def check(self, order: Order) -> None:
        """Wishes in the simulation are modest."""

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        return Path("/volumes") / workload_id / name

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        return self.path(workload_id, name)

    async def release(self, workload_id: WorkloadId) -> None:
        """Nothing is mounted in the simulation."""

    async def inventory(self) -> list[VolumeSeen]:
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
            self._witness.volumes_go(self._docker.node_id, workload_id, here)
        self._docker.volumes -= {(workload_id, name) for name in names}
        await self._life.gate("volumes.done")
        return None

    async def _pause(self) -> None:
        await self._life.gate("volumes")
        await asyncio.sleep(self._random.uniform(*DEED_SECONDS))
        await self._life.gate("volumes")
