"""The Docker engine of a node with injected faults: slow, failing or unresponsive.

Images are pulled by the agent's own code (`agent/runtimes/docker/pull.py`); the simulated engine implements
the two calls that it uses.
"""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from random import Random
from typing import Any

from persys.agent.runtimes.docker.engine import EngineError
from persys.agent.runtimes.docker.pull import registry_of
from persys.errors import RuntimeUnavailableError
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import INJECTED
from persys.sim.fakes.docker import Docker, behaves_like

LOOK_SECONDS = (0.001, 0.01)
PULL_PARTS = 3
PART_SECONDS = (0.1, 1.4)
NO_ANSWER_SECONDS = 3.0
UNEXPECTED: tuple[Callable[[], Exception], ...] = (
    lambda: OSError(errno.ENOSPC, f"No space left on device ({INJECTED})"),
    lambda: OSError(errno.EIO, f"Input/output error ({INJECTED})"),
    lambda: OSError(errno.ENAMETOOLONG, f"File name too long ({INJECTED})"),
    lambda: RuntimeError(f"Symlink loop ({INJECTED})"),
    lambda: ValueError(f"embedded null byte ({INJECTED})"),
    lambda: MemoryError(INJECTED),
)


@dataclass(slots=True)
class RuntimeFaults:
    """The active faults of Docker on one node."""

    out: bool = False
    answers_lost: float = 0.0
    errors: float = 0.0
    os_errors: float = 0.0  # share of calls that raise an unexpected exception
    slowness: float = 1.0


class RuntimeCalls:
    """Runtime calls of one process. Each can fail before or after its effect."""

    def __init__(self, process: SimProcess, faults: RuntimeFaults, random: Random) -> None:
        self._process = process
        self._faults = faults
        self._random = random

    async def reach(self, call: str, span: tuple[float, float]) -> None:
        await self._process.gate(call)
        await asyncio.sleep(self._random.uniform(*span) * self._faults.slowness)
        await self._process.gate("runtime")
        if self._faults.out:
            await asyncio.sleep(self._random.uniform(0, NO_ANSWER_SECONDS))
            raise RuntimeUnavailableError("docker is not responding")
        if self._random.random() < self._faults.os_errors:
            raise self._random.choice(UNEXPECTED)()

    async def answer(self, call: str) -> None:
        """The effect happened. The response may be lost."""
        await self._process.gate(f"{call}.done")
        if self._random.random() < self._faults.answers_lost:
            raise RuntimeUnavailableError("the response of docker was lost")

    def fails(self) -> bool:
        """Whether Docker responds with an error."""
        return self._random.random() < self._faults.errors


class SimEngine:
    """The part of docker_engine.Engine that pulls use."""

    def __init__(self, docker: Docker, calls: RuntimeCalls, silent_registries: set[str]) -> None:
        """A pull from one of `silent_registries` hangs."""
        self._docker = docker
        self._calls = calls
        self._silent = silent_registries

    async def call(self, _method: str, path: str) -> Any:
        image = path.removeprefix("images/").removesuffix("/json")
        await self._calls.reach("image", LOOK_SECONDS)
        if image not in self._docker.images:
            raise EngineError(HTTPStatus.NOT_FOUND, f"no such image: {image}")
        return {"Id": f"sha256:{image}"}

    async def stream(
        self,
        _method: str,
        _path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        begins_within: float | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        image = params["fromImage"].removesuffix(":latest")
        async for part in self._pull(image):
            yield part

    async def _pull(self, image: str) -> AsyncGenerator[dict[str, Any], None]:
        await self._calls.reach("pull", LOOK_SECONDS)
        yield {}
        for part in range(PULL_PARTS):
            if registry_of(image) in self._silent:
                await self._hang(image)
            await self._calls.reach("pull", PART_SECONDS)
            yield {"id": "layer", "status": "Downloading", "progressDetail": {"current": part}}
        kind, _ = behaves_like(image)
        if kind == "missing":
            raise EngineError(HTTPStatus.NOT_FOUND, f"no such image: {image}")
        if kind == "refused" or self._calls.fails():
            yield {"error": "the registry says 503"}
            return
        self._docker.images.add(image)
        await self._calls.answer("pull")

    async def _hang(self, image: str) -> None:
        self._docker.hanging_pulls[image] += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._docker.hanging_pulls[image] -= 1
