"""Containers whose start Docker lost. Docker is faked: a real lost start cannot be triggered."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from persys.agent.runtimes.docker import start as docker_start
from persys.agent.runtimes.docker.engine import Engine, EngineError
from persys.agent.runtimes.docker.start import start_container
from persys.infra.aio.path_calls import DirectPathCalls

LOST, OTHER = "b6" * 32, "c7" * 32


@pytest.fixture
def shims() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes with the command lines of the shims of two containers."""
    created = {
        container: subprocess.Popen(
            [*("containerd-shim-runc-v2", "-c", "read _", "-namespace", "moby"), "-id", container],
            executable="/bin/bash",
            stdin=subprocess.PIPE,
        )
        for container in (LOST, OTHER)
    }
    yield created
    for shim in created.values():
        shim.kill()
        shim.communicate()


@pytest.fixture
async def docker(tmp_path: Path) -> AsyncIterator[Callable[[Callable[[], web.Response]], Engine]]:
    """An engine whose response to every start comes from the given function."""
    responses: list[Callable[[], web.Response]] = []

    async def ping(_request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41"})

    async def start(_request: web.Request) -> web.Response:
        return responses[-1]()

    app = web.Application()
    app.router.add_get("/{rest:(_ping|version|v1.41/version)}", ping)
    app.router.add_post("/{rest:.*}", start)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "docker.sock")).start()
    engine = Engine(f"unix://{tmp_path / 'docker.sock'}")

    def engine_with(answer: Callable[[], web.Response]) -> Engine:
        responses.append(answer)
        return engine

    yield engine_with
    await engine.close()
    await runner.cleanup()


def refused(message: str) -> web.Response:
    return web.json_response({"message": message}, status=500)


def lost() -> web.Response:
    return refused(f"task {LOST}: already exists")


async def test_a_stale_shim_is_killed_and_the_container_starts(
    docker: Callable[[Callable[[], web.Response]], Engine],
    shims: dict[str, subprocess.Popen[bytes]],
) -> None:
    cleanup = iter([f"failed to start shim: mkdir /run/moby/{LOST}: file exists: unknown"] * 3)

    def until_the_shim_has_ended() -> web.Response:
        if shims[LOST].poll() is None:
            return lost()
        message = next(cleanup, "")
        return refused(message) if message else web.Response(status=204)

    async with asyncio.timeout(20):
        await start_container(docker(until_the_shim_has_ended), DirectPathCalls(), LOST)

    assert shims[OTHER].poll() is None


async def test_without_a_stale_shim_the_error_of_docker_is_returned(
    docker: Callable[[Callable[[], web.Response]], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_start, "RETRIES_MAX", 3)

    with pytest.raises(EngineError, match="already exists"):
        await start_container(docker(lost), DirectPathCalls(), LOST)


async def test_other_errors_kill_no_process(
    docker: Callable[[Callable[[], web.Response]], Engine],
    shims: dict[str, subprocess.Popen[bytes]],
) -> None:
    with pytest.raises(EngineError, match="already paused"):
        await start_container(
            docker(lambda: refused(f"{LOST}: already paused")), DirectPathCalls(), LOST
        )

    assert shims[LOST].poll() is None
