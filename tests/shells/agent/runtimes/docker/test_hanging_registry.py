"""A registry that accepts connections and never responds delays only its own images."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from persys.agent.credentials import Credentials
from persys.agent.runtimes.docker.engine import Engine
from persys.agent.runtimes.docker.pull import NO_PROGRESS, PER_REGISTRY_MAX, Puller
from persys.agent.settings import AgentSettings
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.model.spec import ContainerSpec
from persys.model.status import FailureReason


class Watch:
    def __init__(self) -> None:
        self.waits: list[str] = []

    def queued(self, why: str) -> None:
        self.waits.append(why)

    def began(self) -> None: ...

    def progress(self, _fetching: object) -> None: ...

    async def fetched(self, _image: str, _image_id: str) -> None: ...


@asynccontextmanager
async def a_hanging_registry() -> AsyncIterator[str]:
    async def hang(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


async def test_a_registry_that_hangs_delays_only_its_own_images(
    demo_image: str, tmp_path: Path
) -> None:
    engine = Engine(AgentSettings().docker_host)
    puller = Puller(engine, Credentials(tmp_path), ThreadPathCalls(), progress_deadline=2.0)
    watches = [Watch() for _ in range(PER_REGISTRY_MAX + 1)]
    async with a_hanging_registry() as registry, asyncio.TaskGroup() as group:
        stuck = [
            group.create_task(puller.pull(ContainerSpec(f"{registry}/app:{number}"), watch))
            for number, watch in enumerate(watches)
        ]
        await asyncio.sleep(0.5)

        async with asyncio.timeout(20):
            assert await puller.pull(ContainerSpec(demo_image), Watch()) is None
        assert not any(task.done() for task in stuck)
        assert sum(len(watch.waits) for watch in watches) == 1

    failures = [task.result() for task in stuck]
    for failure in failures:
        assert failure is not None
        assert (failure.reason, failure.code) == (FailureReason.IMAGE_PULL_FAILED, NO_PROGRESS)
        assert failure.retryable
    await engine.close()
