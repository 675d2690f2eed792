"""Pulls that wait because others of their registry are in progress."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import pytest

from persys.agent.credentials import Credentials
from persys.agent.runtimes.docker.engine import Engine, EngineError
from persys.agent.runtimes.docker.pull import PER_REGISTRY_MAX, Puller
from persys.infra.aio.path_calls import DirectPathCalls
from persys.model.spec import ContainerSpec, PullPolicy
from persys.model.status import Failure

DEADLINE_SECONDS = 20
SHOP = ContainerSpec("registry.test/shop")


class HangingEngine:
    """The part of Engine that pulls use: a pull hangs until its image is released."""

    def __init__(self) -> None:
        self.images: set[str] = set()
        self.pulls: list[str] = []
        self.started = asyncio.Event()
        self.released: dict[str, asyncio.Event] = {}

    async def call(self, _method: str, path: str) -> Any:
        image = path.removeprefix("images/").removesuffix("/json")
        if image not in self.images:
            raise EngineError(HTTPStatus.NOT_FOUND, f"no such image: {image}")
        return {"Id": f"sha256:{image}"}

    async def stream(
        self, _method: str, _path: str, *, params: dict[str, str], **_options: object
    ) -> AsyncGenerator[dict[str, Any], None]:
        image = params["fromImage"].removesuffix(":latest")
        self.pulls.append(image)
        if len(self.pulls) == PER_REGISTRY_MAX:
            self.started.set()
        await self.released.setdefault(image, asyncio.Event()).wait()
        self.images.add(image)
        yield {}


class Watch:
    def __init__(self) -> None:
        self.waits = asyncio.Event()

    def queued(self, _why: str) -> None:
        self.waits.set()

    def began(self) -> None: ...

    def progress(self, _fetching: object) -> None: ...

    async def fetched(self, _image: str, _image_id: str) -> None: ...


class Node:
    """All slots of a registry are taken: one by a pull of SHOP, the others by pulls that hang."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.engine = HangingEngine()
        self._group = group
        self._tasks: list[asyncio.Task[Failure | None]] = []
        self._puller = Puller(
            cast("Engine", self.engine), Credentials(Path("/credentials")), DirectPathCalls()
        )

    def pull(self, spec: ContainerSpec, watch: Watch | None = None) -> asyncio.Task[Failure | None]:
        work: Coroutine[None, None, Failure | None] = self._puller.pull(spec, watch or Watch())
        self._tasks.append(self._group.create_task(work))
        return self._tasks[-1]

    async def take_slots(self) -> None:
        self.pull(SHOP)
        for number in range(PER_REGISTRY_MAX - 1):
            self.pull(ContainerSpec(f"registry.test/hangs-{number}"))
        await self.engine.started.wait()

    def release(self, spec: ContainerSpec) -> None:
        self.engine.released[spec.image].set()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def a_busy_node() -> AsyncIterator[Node]:
    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        node = Node(group)
        await node.take_slots()
        yield node
        node.end()


async def queued(node: Node, spec: ContainerSpec) -> asyncio.Task[Failure | None]:
    watch = Watch()
    task = node.pull(spec, watch)
    await watch.waits.wait()
    await asyncio.sleep(0)
    return task


async def test_a_pull_that_waits_ends_when_its_image_is_pulled_for_another_workload() -> None:
    async with a_busy_node() as node:
        in_line = [await queued(node, ContainerSpec(f"registry.test/x-{one}")) for one in range(4)]
        waiting = await queued(node, SHOP)

        node.release(SHOP)

        assert await waiting is None
        assert node.engine.pulls.count(SHOP.image) == 1
        assert not any(task.done() for task in in_line)


async def test_a_pull_that_waits_ends_when_another_workload_finds_its_image() -> None:
    async with a_busy_node() as node:
        other = ContainerSpec("registry.test/uploaded")
        waiting = await queued(node, other)
        node.engine.images.add(other.image)

        assert await node.pull(other) is None

        assert await waiting is None


async def test_a_pull_with_the_policy_always_keeps_its_place() -> None:
    async with a_busy_node() as node:
        always = ContainerSpec(SHOP.image, pull_policy=PullPolicy.ALWAYS)
        waiting = await queued(node, always)

        node.release(SHOP)

        assert await waiting is None
        assert node.engine.pulls.count(SHOP.image) == 2


async def test_the_slot_of_a_wait_that_ended_is_used_by_the_next() -> None:
    async with a_busy_node() as node:
        first, second = (
            await queued(node, SHOP),
            await queued(node, ContainerSpec("registry.test/x")),
        )

        node.release(SHOP)
        assert await first is None
        node.engine.released.setdefault("registry.test/x", asyncio.Event()).set()

        assert await second is None


@pytest.mark.parametrize("policy", [PullPolicy.IF_NOT_PRESENT, PullPolicy.ALWAYS])
async def test_a_cancelled_wait_takes_no_slot(policy: PullPolicy) -> None:
    async with a_busy_node() as node:
        waiting = await queued(node, ContainerSpec("registry.test/x", pull_policy=policy))
        waiting.cancel()
        await asyncio.wait([waiting])
        node.release(SHOP)
        node.engine.released["registry.test/y"] = asyncio.Event()
        node.engine.released["registry.test/y"].set()

        assert await node.pull(ContainerSpec("registry.test/y")) is None
