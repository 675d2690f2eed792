"""Size support of Docker's storage driver is detected with the first container. Docker is faked."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from persys.agent.credentials import Credentials
from persys.agent.runtimes.docker.config_files import ContainerFiles
from persys.agent.runtimes.docker.disk_limits import DiskLimits
from persys.agent.runtimes.docker.engine import Engine
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.runtimes.docker.pull import Puller
from persys.agent.runtimes.docker.runtime import DockerRuntime
from persys.agent.workloads.node_policy import NodePolicy
from persys.infra.aio.path_calls import DirectPathCalls
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.workload import Desired, Order


class Docker:
    def __init__(self) -> None:
        self.can_limit = False
        self.sizes: list[str] = []  # requested sizes, "" for none

    async def create(self, request: web.Request) -> web.Response:
        config = json.loads(await request.text())["HostConfig"]
        self.sizes.append((config.get("StorageOpt") or {}).get("size", ""))
        if self.sizes[-1] and not self.can_limit:
            return web.json_response({"message": "not supported"}, status=500)
        return web.json_response({"Id": "c1"}, status=201)


@pytest.fixture
async def docker(tmp_path: Path) -> AsyncIterator[tuple[Docker, DockerRuntime]]:
    fake = Docker()

    async def version(_request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": "1.41"})

    app = web.Application()
    app.router.add_get("/{rest:.*}", version)
    app.router.add_post("/v1.41/containers/create", fake.create)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "docker.sock")).start()
    engine = Engine(f"unix://{tmp_path / 'docker.sock'}")
    owner, paths = OwnerLabels("c", NodeId("n1")), DirectPathCalls()
    runtime = DockerRuntime(
        engine,
        owner,
        puller=Puller(engine, Credentials(tmp_path), paths),
        files=ContainerFiles(tmp_path / "files", None),
        paths=paths,
        policy=NodePolicy(allow_privileged=False, bind_roots=(), protected=()),
        stop_grace_seconds=1,
        pids_max=10,
        disk_limits=DiskLimits(engine, owner, stops=True),
    )
    yield fake, runtime
    await engine.close()
    await runner.cleanup()


def an_order(disk_gb: int) -> Order:
    spec = ContainerSpec("web", disk_gb=disk_gb)
    web_id = WorkloadId("web")
    return Order(web_id, WorkloadType.CONTAINER, Revision("r1"), 1, Desired.RUNNING, spec)


async def test_a_storage_driver_with_size_support_limits_every_container(
    docker: tuple[Docker, DockerRuntime],
) -> None:
    fake, runtime = docker
    fake.can_limit = True

    assert await runtime.create(an_order(2), {}) is None
    assert await runtime.create(an_order(3), {}) is None
    assert await runtime.create(an_order(0), {}) is None

    assert fake.sizes == ["2G", "3G", ""]


async def test_a_storage_driver_without_size_support_is_tried_once(
    docker: tuple[Docker, DockerRuntime],
) -> None:
    fake, runtime = docker

    assert await runtime.create(an_order(2), {}) is None
    assert await runtime.create(an_order(3), {}) is None

    assert fake.sizes == ["2G", "", ""]
