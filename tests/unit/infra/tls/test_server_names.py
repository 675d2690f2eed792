"""Which name a scheduler certificate must have: real handshakes with certificates of all kinds."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from persys.infra.clock import SystemClock
from persys.infra.rpc.grpc_server import new_server, start_server
from persys.infra.tls.certificates import CertificateFiles, Certificates
from persys.infra.tls.server_names import OUTAGE_SECONDS, ServerNames
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from root_ca import Root

BY_ROLE = "scheduler.persys.internal"
BY_HOST = ""
DEADLINE_SECONDS = 60


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


@asynccontextmanager
async def serving(files: CertificateFiles, port: int = 0) -> AsyncIterator[int]:
    server = new_server()
    certificates = Certificates(files, SystemClock())
    bound = await start_server(
        server, "grpc.health.v1.Health", host="127.0.0.1", port=port, certificates=certificates
    )
    try:
        yield bound
    finally:
        await server.stop(0)


class LaterClock(SystemClock):
    def __init__(self) -> None:
        self.ahead = 0.0
        super().__init__(monotonic=lambda: time.monotonic() + self.ahead)


async def examined(
    root: Root,
    files: CertificateFiles,
    roles: Mapping[str, Role] | None = None,
    host: str = "127.0.0.1",
) -> tuple[str, str]:
    """The required name afterwards, and the reason in the log."""
    names = ServerNames(root.write(Role.AGENT, "n1"), SystemClock(), roles or {})
    async with serving(files) as port:
        with capture_logs() as lines:
            await names.examine(f"{host}:{port}", Role.SCHEDULER)
        expected = names.expected(f"{host}:{port}", Role.SCHEDULER)
    reasons = [str(line["reason"]) for line in lines if line["event"] == "server.not_verified"]
    return expected, "".join(reasons)


@pytest.mark.parametrize("name", ["persys-scheduler", "persys_scheduler.example.org"])
async def test_a_third_party_scheduler_is_verified_by_its_host(root: Root, name: str) -> None:
    assert await examined(root, root.write_named(name)) == (BY_HOST, "")


async def test_a_setting_admits_another_name_for_schedulers(root: Root) -> None:
    files = root.write_named("control")

    expected, reason = await examined(root, files)
    assert expected == BY_ROLE
    assert reason == (
        "certificate CN 'control' is not recognised; PERSYS_TLS_CN_ROLES=control=scheduler admits it"
    )
    assert await examined(root, files, {"control": Role.SCHEDULER}) == (BY_HOST, "")


@pytest.mark.parametrize("name", ["persys-agent-n2", "persys-gateway", "operator/ann", "shared"])
async def test_a_third_party_certificate_of_another_role_is_refused(root: Root, name: str) -> None:
    expected, reason = await examined(root, root.write_named(name), {"shared": Role.AGENT})

    assert expected == BY_ROLE
    assert reason


async def test_the_certificate_of_a_node_is_refused_although_it_contains_the_host(
    root: Root,
) -> None:
    files = root.write(Role.AGENT, "n2", hosts=("127.0.0.1",))

    assert await examined(root, files) == (BY_ROLE, "")


async def test_a_third_party_scheduler_at_another_host_is_refused(root: Root) -> None:
    expected, reason = await examined(root, root.write_named("persys-scheduler"), host="localhost")

    assert expected == BY_ROLE
    assert reason == (
        "certificate CN 'persys-scheduler' is valid for 127.0.0.1: expected localhost"
    )


async def test_a_scheduler_of_another_ca_is_refused(root: Root, tmp_path: Path) -> None:
    other = Root(tmp_path / "other").write_named("persys-scheduler")

    assert await examined(root, other) == (BY_ROLE, "")


async def test_a_channel_connects_to_a_third_party_scheduler_and_then_to_ours(root: Root) -> None:
    clock = LaterClock()
    tls = Tls(root.write(Role.AGENT, "n1"), clock)
    running = asyncio.create_task(tls.run())
    try:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            serving(root.write_named("persys-scheduler")) as port,
        ):
            channel = tls.dial(Role.SCHEDULER)(f"127.0.0.1:{port}")
            await _until_served(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await _check(channel)
        clock.ahead = OUTAGE_SECONDS
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            serving(root.write(Role.SCHEDULER, "s1"), port),
        ):
            await _until_served(channel)
        await channel.close()
    finally:
        running.cancel()


def test_a_scheduler_that_was_connected_is_examined_only_after_an_outage(root: Root) -> None:
    clock = LaterClock()
    names = ServerNames(root.write(Role.AGENT, "n1"), clock, {})

    def report(*, connected: bool) -> bool:
        return names.report("127.0.0.1:8085", Role.SCHEDULER, connected=connected)

    assert report(connected=False), "it was never connected"
    assert not report(connected=True)
    assert not report(connected=False)
    clock.ahead = OUTAGE_SECONDS
    assert report(connected=False)
    assert not report(connected=False), "again only after a minute"


async def _until_served(channel: grpc.aio.Channel) -> None:
    while True:
        try:
            await _check(channel)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)
        else:
            return


async def _check(channel: grpc.aio.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
