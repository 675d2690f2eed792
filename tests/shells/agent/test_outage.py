"""Docker goes silent and comes back: nothing is deleted, all is unknown, and work resumes by itself."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

DOCKER_SOCKET = "/var/run/docker.sock"
RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
UNKNOWN = agent_pb2.ACTUAL_STATE_UNKNOWN


class Proxy:
    """A socket that leads to Docker's, until it is cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def mend(self) -> None:
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(10)

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)
        while self._open:
            for writer in self._open:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(DOCKER_SOCKET)
        self._open |= {writer, far_writer}
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pump(reader, far_writer))
            group.create_task(self._pump(far_reader, writer))
        self._open -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # the other side was cut
        writer.close()


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    made = Proxy(tmp_path / "docker.sock")
    made.mend()
    yield made
    made.close()


def test_while_docker_is_silent_nothing_is_known_and_afterwards_all_is_well(
    new_agent: "Callable[..., Agent]",
    proxy: Proxy,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}")
    agent.start()
    agent.apply(unique_id, sleeper)
    before = agent.wait_for(unique_id, RUNNING)

    proxy.cut()
    silent = agent.wait_for(unique_id, UNKNOWN)
    health = agent.stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)
    answer = agent.apply(f"{unique_id}-late", sleeper)
    agent.wait_for(f"{unique_id}-late", UNKNOWN)

    assert silent.message == "docker gives no answer"
    assert not health.healthy
    assert health.runtime_status["container"] == "unhealthy: docker gives no answer"
    assert answer.applied
    assert agent.containers(unique_id, running=True) == [before.metadata["container.id"]]

    proxy.mend()
    after = agent.wait_for(unique_id, RUNNING)
    agent.wait_for(f"{unique_id}-late", RUNNING)

    assert after.metadata == before.metadata
    assert len(agent.logged("runtime.lost")) == 1
    assert len(agent.logged("runtime.returned")) == 1


def test_what_happened_in_the_silence_is_noticed_afterwards(
    new_agent: "Callable[..., Agent]",
    proxy: Proxy,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    proxy.cut()
    agent.wait_for(unique_id, UNKNOWN)
    run_docker("rm", "-f", *agent.containers(unique_id))

    proxy.mend()

    agent.wait_for(unique_id, RUNNING)
    assert len(agent.containers(unique_id, running=True)) == 1


def test_an_outage_is_no_hot_loop(
    new_agent: "Callable[..., Agent]",
    proxy: Proxy,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    proxy.cut()
    agent.wait_for(unique_id, UNKNOWN)

    used, began = agent.cpu_seconds(), time.monotonic()
    time.sleep(2)  # the span over which the use of the processor is measured

    assert (agent.cpu_seconds() - used) / (time.monotonic() - began) < 0.1
