"""Which clients may connect to a scheduler, and how their certificates are verified."""

import asyncio
import os
import re
import resource
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.identity import Role, server_name
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import LIFETIME, Root
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually, fast_settings
from shells.scheduler.replicas import Replicas
from shells.scheduler.stores import FaultyStore
from unauthenticated import openssl_connects

HALF_OPEN = 1_000


@pytest.fixture
def scheduler(root: Root) -> Tls:
    return root.tls(Role.SCHEDULER, "s1")


@pytest.fixture
def user(root: Root) -> Tls:
    return root.tls(Role.ADMIN, "me")


@pytest.fixture
async def secure(scheduler: Tls, user: Tls) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(), tls=scheduler, user=user) as cluster:
        yield cluster
    await store.store.close()


async def is_refused(channel: grpc.aio.Channel) -> bool:
    """Also by reflection, which lists the services."""
    async with channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([request]), timeout=5)
        try:
            await call.read()
        except grpc.aio.AioRpcError as err:
            return err.code() is grpc.StatusCode.UNAVAILABLE
    return False


def dial(cluster: Cluster, credentials: grpc.ChannelCredentials) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(
        f"127.0.0.1:{cluster.settings.grpc_port}",
        credentials,
        options=[("grpc.ssl_target_name_override", server_name(Role.SCHEDULER))],
    )


def shown(root: Root, user: Tls) -> grpc.ChannelCredentials:
    pair = user.certificates.current
    return grpc.ssl_channel_credentials(root.pem, pair.key, pair.chain)


def read_page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        text: str = response.read().decode()
    return text


def test_without_a_certificate_a_scheduler_does_not_start_unless_it_is_insecure(
    tmp_path: Path,
) -> None:
    missing = tmp_path / "none.crt"
    result = subprocess.run(
        [sys.executable, "-m", "persys.scheduler"],
        env=os.environ
        | {
            "PERSYS_STORE": f"sqlite:{tmp_path / 'scheduler.db'}",
            "PERSYS_TLS_CERT": str(missing),
            "GRPC_PORT": "0",
            "METRICS_PORT": "0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == 1
    assert f"{missing}: no such file" in result.stderr
    assert "-insecure" in result.stderr


async def test_a_workload_runs_over_tls_from_user_to_node(secure: Cluster, root: Root) -> None:
    node = await secure.prepare("n1", tls=root.tls(Role.AGENT, "n1"))
    await node.agent.stop()
    node.agent.credentials = root.tls(Role.AGENT, "n1").certificates.server_credentials()
    await node.agent.start()
    await node.join()

    await secure.control.apply("web")

    assert (await secure.control.until("web", "Running")).assigned_node_id == "n1"


async def test_a_node_with_the_certificate_of_another_gets_no_orders(
    secure: Cluster, root: Root
) -> None:
    node = await secure.prepare("n1", tls=root.tls(Role.AGENT, "n1"))
    await node.agent.stop()
    node.agent.credentials = root.tls(Role.AGENT, "n2").certificates.server_credentials()
    await node.agent.start()
    await node.join()

    await secure.control.apply("web")

    async def tried() -> bool:
        page = await asyncio.to_thread(read_page, secure.settings.metrics_port)
        return (
            re.search(r'^persys_scheduler_node_unanswered_calls\{.*"n1".*\}', page, re.M)
            is not None
        )

    await eventually(tried, lambda: "the scheduler to try")
    assert node.agent.applies == []


async def test_a_client_without_a_certificate_cannot_use_reflection(
    secure: Cluster, root: Root, user: Tls
) -> None:
    port = secure.settings.grpc_port
    assert await is_refused(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
    assert await is_refused(dial(secure, grpc.ssl_channel_credentials(root.pem)))
    assert not await is_refused(dial(secure, shown(root, user)))


async def test_a_certificate_of_another_root_is_refused(
    secure: Cluster, root: Root, tmp_path: Path
) -> None:
    unassigned = Root(tmp_path / "elsewhere").tls(Role.ADMIN, "me")
    assert await is_refused(dial(secure, shown(root, unassigned)))


@pytest.mark.parametrize("age", [2 * LIFETIME, -LIFETIME], ids=["expired", "not yet valid"])
async def test_an_expired_or_future_certificate_is_refused(
    secure: Cluster, root: Root, age: timedelta
) -> None:
    files = root.write(Role.ADMIN, "late", age=age)
    credentials = grpc.ssl_channel_credentials(
        root.pem, files.key.read_bytes(), files.certificate.read_bytes()
    )
    assert await is_refused(dial(secure, credentials))


@pytest.mark.parametrize(
    ("version", "gets_in"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)]
)
async def test_only_tls_1_2_and_newer_is_accepted(
    secure: Cluster, root: Root, version: str, gets_in: bool
) -> None:
    files = root.write(Role.ADMIN, "me")
    own = ("-cert", str(files.certificate), "-key", str(files.key))
    port = secure.settings.grpc_port
    assert await asyncio.to_thread(openssl_connects, port, version, *own) is gets_in


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
async def test_openssl_without_a_certificate_is_refused(secure: Cluster, version: str) -> None:
    assert not await asyncio.to_thread(openssl_connects, secure.settings.grpc_port, version)


async def test_a_thousand_idle_connections_do_not_affect_others(secure: Cluster, user: Tls) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    address = ("127.0.0.1", secure.settings.grpc_port)
    with ExitStack() as sockets:
        for number in range(HALF_OPEN):
            one = sockets.enter_context(socket.create_connection(address, 5))
            if number % 2:
                one.send(b"\x16\x03\x01\x02\x00\x01")  # the first bytes of a handshake
        new_client = Control(secure.settings.grpc_port, user)
        try:
            response = await new_client.summary()
        finally:
            await new_client.channel.close()
    assert response.total_nodes == 0


async def test_a_plain_text_connection_is_closed(secure: Cluster) -> None:
    with socket.create_connection(("127.0.0.1", secure.settings.grpc_port), 5) as plain:
        plain.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        plain.settimeout(15)
        output = await asyncio.to_thread(plain.recv, 1024)
    assert b"HTTP" not in output


async def test_a_node_that_does_not_renew_is_an_event_once_and_time_left_is_a_metric(
    secure: Cluster, root: Root
) -> None:
    late = Tls(root.write(Role.AGENT, "n1", age=LIFETIME - timedelta(hours=1)), SystemClock())
    node = await secure.prepare("n1", tls=late)
    await node.join()
    own = Control(secure.settings.grpc_port, late)
    try:
        for _ in range(2):
            await own.stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)
    finally:
        await own.channel.close()

    request = pb.ListEventsRequest(kinds=["NodeCertificateExpires"])
    (event,) = (await secure.control.stub.ListEvents(request, timeout=10)).events
    assert event.node_id == "n1"
    assert "was not renewed" in event.message
    page = await asyncio.to_thread(read_page, secure.settings.metrics_port)
    found = re.search(r"^persys_scheduler_certificate_expiry_seconds (\S+)$", page, re.M)
    assert found is not None
    assert 0 < float(found[1]) <= LIFETIME.total_seconds()


async def test_a_standby_forwards_over_tls_before_and_after_its_certificate_changes(
    root: Root, user: Tls
) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas = Replicas(store)
    try:
        await replicas.add(tls=root.tls(Role.SCHEDULER, "s1"), user=user)
        standing_by = root.tls(Role.SCHEDULER, "s2")
        second = await replicas.add(tls=standing_by, user=user)
        assert (await second.apply("before")).success

        root.write(Role.SCHEDULER, "s2")
        assert standing_by.certificates.reload()

        assert (await second.apply("after")).success
        assert sorted(await second.names()) == ["after", "before"]
    finally:
        await replicas.close()
        await store.close()
