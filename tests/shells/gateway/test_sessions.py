"""Streams through a gateway end when the certificate of the person behind them is revoked or expires."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from certified import Root
from persys.infra.clock import SystemClock
from persys.infra.guarded import RECHECK_SECONDS
from persys.infra.identity import read_claims
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from shells.gateway.test_tls import shows
from shells.gateway.town import House, a_gateway, quiet
from shells.scheduler.harness import Cluster, a_cluster, brisk
from shells.scheduler.stores import TroubledStore
from shells.scheduler.test_bad_actors import Listed
from shells.scheduler.test_sessions import with_an_idle_workload

ENDS_WITHIN = RECHECK_SECONDS + 15


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture(params=["scheduler", "gateway"])
def reader(request: pytest.FixtureRequest) -> str:
    """Which of the two reads the list of revoked certificates: either alone ends the stream."""
    name: str = request.param
    return name


@pytest.fixture
def listed() -> Listed:
    return Listed()


@pytest.fixture
async def secure(root: Root, listed: Listed, reader: str) -> AsyncIterator[Cluster]:
    store = TroubledStore(MemoryStore(SystemClock().monotonic))
    lists = [listed.read_often()] if reader == "scheduler" else []
    scheduler, admin = root.tls(Role.SCHEDULER, "s1", lists=lists), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, brisk(), tls=scheduler, user=admin) as cluster:
        await with_an_idle_workload(cluster, root)
        yield cluster
    await store.store.close()


@pytest.fixture
async def house(root: Root, listed: Listed, secure: Cluster, reader: str) -> AsyncIterator[House]:
    address = f"127.0.0.1:{secure.settings.grpc_port}"
    lists = [listed.read_often()] if reader == "gateway" else []
    tls = root.tls(Role.GATEWAY, "g1", lists=lists)
    settings = quiet(insecure=False, scheduler_addr=(address,))
    async with a_gateway(settings, tls=tls) as running:
        yield running


@pytest.fixture
def eve(root: Root) -> tuple[ssl.SSLContext, str]:
    """An operator's TLS context, and the serial of its certificate."""
    files = root.write(Role.OPERATOR, "eve")
    return shows(root, files), read_claims(files.certificate.read_bytes()).serial


async def test_an_idle_shell_is_closed_when_its_certificate_is_revoked(
    house: House, listed: Listed, eve: tuple[ssl.SSLContext, str]
) -> None:
    context, serial = eve
    path = "/api/v1/workloads/web/exec?command=sh"
    async with house.session.ws_connect(path, ssl=context) as socket:
        assert (await socket.receive(timeout=10)).type is aiohttp.WSMsgType.TEXT

        listed.serials.add(serial)

        closed = await socket.receive(timeout=ENDS_WITHIN)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 4403)


async def until_ended(response: aiohttp.ClientResponse) -> None:
    """Logs break off; a watch may end with a problem."""
    with suppress(aiohttp.ClientError):
        while await response.content.readany():
            pass


@pytest.mark.parametrize("path", ["/api/v1/workloads/web/logs?follow=true", "/api/v1/events/watch"])
async def test_an_idle_stream_is_ended_when_its_certificate_is_revoked(
    house: House, listed: Listed, eve: tuple[ssl.SSLContext, str], path: str
) -> None:
    context, serial = eve
    timeout = aiohttp.ClientTimeout(total=60)
    async with house.session.get(path, ssl=context, timeout=timeout) as response:
        assert response.status == 200

        listed.serials.add(serial)

        async with asyncio.timeout(ENDS_WITHIN):
            await until_ended(response)
    status, _ = await house.get("/api/v1/nodes", ssl=context)
    assert status == 403
