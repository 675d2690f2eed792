"""Streams through a gateway end when the client certificate is revoked or expires."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta

import aiohttp
import pytest

from persys.infra.clock import SystemClock
from persys.infra.rpc.authorized_service import RECHECK_SECONDS
from persys.infra.tls.identity import read_claims
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.rest.routes import API
from root_ca import LIFETIME, RevocationList, Root
from shells.gateway.running_gateway import RunningGateway, a_gateway, client_context, quiet
from shells.scheduler.harness import Cluster, ShiftedClock, a_cluster, fast_settings
from shells.scheduler.idle_agent import with_an_idle_workload
from shells.scheduler.stores import FaultyStore

ENDS_WITHIN = RECHECK_SECONDS + 15
UNLIMITED = aiohttp.ClientTimeout()


@pytest.fixture(params=["scheduler", "gateway"])
def reader(request: pytest.FixtureRequest) -> str:
    """Which of the two processes has the revocation list: either one ends the stream."""
    name: str = request.param
    return name


@pytest.fixture
async def secure_scheduler(
    root: Root, listed: RevocationList, reader: str
) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    lists = [listed.read_often()] if reader == "scheduler" else []
    scheduler, admin = root.tls(Role.SCHEDULER, "s1", lists=lists), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, fast_settings(), tls=scheduler, user=admin) as cluster:
        await with_an_idle_workload(cluster, root)
        yield cluster
    await store.store.close()


@pytest.fixture
def clock() -> ShiftedClock:
    """The revocation list of the gateway."""
    return ShiftedClock()


@pytest.fixture
async def api(
    root: Root, listed: RevocationList, secure_scheduler: Cluster, reader: str, clock: ShiftedClock
) -> AsyncIterator[RunningGateway]:
    address = f"127.0.0.1:{secure_scheduler.settings.grpc_port}"
    lists = [listed.read_often()] if reader == "gateway" else []
    tls = root.tls(Role.GATEWAY, "g1", lists=lists)
    settings = quiet(insecure=False, scheduler_addr=(address,))
    async with a_gateway(settings, tls=tls, clock=clock) as running:
        yield running


@pytest.fixture
def eve(root: Root) -> tuple[ssl.SSLContext, str]:
    """An operator's TLS context, and the serial of its certificate."""
    files = root.write(Role.OPERATOR, "eve")
    return client_context(root, files), read_claims(files.certificate.read_bytes()).serial


@pytest.fixture(params=["revoked", "expired"])
def invalidate(
    request: pytest.FixtureRequest,
    listed: RevocationList,
    eve: tuple[ssl.SSLContext, str],
    reader: str,
    secure_scheduler: Cluster,
    clock: ShiftedClock,
) -> Callable[[], None]:
    """Makes the certificate invalid for one process: by its revocation list, or by its clock."""

    def revoke() -> None:
        listed.serials.add(eve[1])

    def expire() -> None:
        judge = secure_scheduler.clock if reader == "scheduler" else clock
        judge.ahead = LIFETIME + timedelta(minutes=1)

    return revoke if request.param == "revoked" else expire


SESSIONS = ("command=sh", "console=true")
STREAMS = ("/workloads/web/logs?follow=true", "/events/watch")


async def test_open_streams_end_when_the_client_certificate_becomes_invalid(
    api: RunningGateway, eve: tuple[ssl.SSLContext, str], invalidate: Callable[[], None]
) -> None:
    context, _ = eve
    async with AsyncExitStack() as opened, asyncio.timeout(60):
        sockets = [
            await opened.enter_async_context(
                api.session.ws_connect(f"{API}/workloads/web/exec?{session}", ssl=context)
            )
            for session in SESSIONS
        ]
        streams = [
            await opened.enter_async_context(
                api.session.get(API + path, ssl=context, timeout=UNLIMITED)
            )
            for path in STREAMS
        ]
        for socket in sockets:
            assert (await socket.receive()).type is aiohttp.WSMsgType.TEXT
        assert [response.status for response in streams] == [200, 200]

        invalidate()

        async with asyncio.timeout(ENDS_WITHIN):
            for socket in sockets:
                closed = await socket.receive()
                assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 4403)
            for response in streams:
                await until_ended(response)
    status, _ = await api.get(f"{API}/nodes", ssl=context)
    assert status == 403


async def until_ended(response: aiohttp.ClientResponse) -> None:
    """Logs are aborted; a watch may end with a problem."""
    with suppress(aiohttp.ClientError):
        while await response.content.readany():
            pass
