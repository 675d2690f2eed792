"""Every change by a user has an event with the identity and the address of the caller."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import FORWARDED_IDENTITY, FORWARDED_SOURCE
from persys.model.identity import Role
from persys.model.role import Permission
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Audit
from root_ca import Root
from shells.scheduler.calls import (
    CALLS,
    CHANGING,
    World,
    a_lost_store,
    a_running_workload,
    a_world,
    quiet,
)
from shells.scheduler.harness import Cluster, Control, a_cluster
from shells.scheduler.replicas import Replicas, until_standby
from shells.scheduler.stores import FaultyStore

OPERATOR = "operator/alice"
AUDITED = {row.name for row in METHODS.values() if row.audit is not Audit.NONE}
Call = Callable[[Any], Awaitable[Any]]


@pytest.fixture
async def cluster(root: Root, tmp_path: Path) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "alice")
    settings = quiet(secrets_key_file=str(tmp_path / "key"))
    async with a_cluster(store, settings, tls=tls, user=user) as running:
        yield running
    await store.store.close()


async def populated(cluster: Cluster, root: Root) -> World:
    """A node with a running workload."""
    world = await a_world(cluster, root.tls(Role.AGENT, "n1"))
    await a_running_workload(world, "web")
    return world


async def exec_messages() -> AsyncIterator[pb.ExecInput]:
    yield pb.ExecInput(start=pb.ExecStart(workload_id="web", command=["sh", "-c", "secret"]))


async def console_messages() -> AsyncIterator[pb.ExecInput]:
    yield pb.ExecInput(start=pb.ExecStart(workload_id="web", console=True))


async def image_messages() -> AsyncIterator[pb.AddImageRequest]:
    yield pb.AddImageRequest(start=pb.AddImageStart(name="debian-13", url="http://127.0.0.1:9/x"))


async def events(cluster: Cluster, after: int) -> list[pb.EventView]:
    request = pb.ListEventsRequest(after_sequence=after)
    return list((await cluster.control.stub.ListEvents(request, timeout=10)).events)


async def last_sequence(cluster: Cluster) -> int:
    response = await cluster.control.stub.ListEvents(pb.ListEventsRequest(limit=1), timeout=10)
    sequence: int = response.last_sequence
    return sequence


RECOVERIES = [name for name in CALLS if CALLS[name].before is a_lost_store]


async def test_every_change_names_its_caller(cluster: Cluster, root: Root) -> None:
    world = await a_world(cluster, root.tls(Role.AGENT, "n1"))
    for number, name in enumerate(name for name in CALLS if name not in RECOVERIES):
        await check_audit_event(world, root, name, f"x{number}")


@pytest.mark.parametrize("name", RECOVERIES)
async def test_every_recovery_command_names_its_caller(
    cluster: Cluster, root: Root, name: str
) -> None:
    world = await a_world(cluster, root.tls(Role.AGENT, "n1"))
    await check_audit_event(world, root, name, "x")


async def check_audit_event(world: World, root: Root, name: str, own: str) -> None:
    """Call it as an admin; reports of nodes as the node itself."""
    call, cluster = CALLS[name], world.cluster
    await call.before(world, own)
    before = await last_sequence(cluster)
    role, who = Role.ADMIN, "bob"
    if METHODS[name].permission is Permission.REPORT:
        role, who = Role.AGENT, own if name == "Heartbeat" else f"{own}-new"
    caller = Control(cluster.settings.grpc_port, root.tls(role, who))
    responses = await answered(getattr(caller.stub, name)(call.request(own), timeout=20))
    await caller.channel.close()
    for response in responses:
        assert getattr(response, "accepted", True), f"{name}: {response}"
        assert getattr(response, "success", True), f"{name}: {response}"
    if name in RECOVERIES:
        before = 0  # the event log restarts
    found = [one for one in await events(cluster, before) if one.kind == call.event]
    assert [one.identity for one in found] == [f"{role}/{who}"] * call.event_count, name
    assert found[0].source.startswith("127.0.0.1:"), name


async def answered(call: Any) -> list[Any]:
    return [one async for one in call] if hasattr(call, "__aiter__") else [await call]


def test_changes_by_users_are_audited() -> None:
    reports = {row.name for row in METHODS.values() if row.permission is Permission.REPORT}
    assert CHANGING - reports == AUDITED
    assert all(CALLS[name].event for name in CHANGING)


@pytest.mark.parametrize(
    ("rpc", "messages", "kind", "text"),
    [
        ("Exec", exec_messages, "ExecStarted", "sh"),
        ("Exec", console_messages, "ConsoleOpened", ""),
        ("AddImage", image_messages, "ImageAdded", "debian-13"),
        ("SaveSnapshot", pb.SaveSnapshotRequest, "SnapshotSaved", ""),
    ],
)
async def test_a_stream_is_in_the_history_from_its_start(
    cluster: Cluster, root: Root, rpc: str, messages: Callable[[], Any], kind: str, text: str
) -> None:
    await populated(cluster, root)
    call = getattr(cluster.control.stub, rpc)(messages(), timeout=20)
    with suppress(grpc.aio.AioRpcError):  # the result does not matter
        async for _ in call:
            pass

    (event,) = [one for one in await events(cluster, 0) if one.kind == kind]
    assert (event.identity, event.message) == ("admin/alice", text)
    assert event.workload_id == ("web" if rpc == "Exec" else "")


async def test_reads_and_no_op_changes_write_no_event(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    before = await last_sequence(cluster)

    await cluster.control.apply("web")
    await cluster.control.names()

    assert await events(cluster, before) == []


async def test_a_call_through_a_gateway_names_the_person_and_the_gateway(
    cluster: Cluster, root: Root
) -> None:
    gateway = Control(cluster.settings.grpc_port, root.tls(Role.GATEWAY, "g1"))
    metadata = ((FORWARDED_IDENTITY, OPERATOR), (FORWARDED_SOURCE, "198.51.100.7"))
    request = pb.PutSecretRequest(name="s", value=b"x")
    assert (await gateway.stub.PutSecret(request, timeout=10, metadata=metadata)).accepted

    (event,) = [one for one in await events(cluster, 0) if one.kind == "SecretStored"]
    assert (event.identity, event.source) == ("operator/alice via gateway/g1", "198.51.100.7")
    await gateway.channel.close()


async def test_only_a_gateway_or_scheduler_may_forward_a_caller(
    cluster: Cluster, root: Root
) -> None:
    mallory = Control(cluster.settings.grpc_port, root.tls(Role.OPERATOR, "mallory"))
    metadata = ((FORWARDED_IDENTITY, "admin/alice"), (FORWARDED_SOURCE, "198.51.100.7"))
    request = pb.PutSecretRequest(name="s", value=b"x")
    assert (await mallory.stub.PutSecret(request, timeout=10, metadata=metadata)).accepted

    (event,) = [one for one in await events(cluster, 0) if one.kind == "SecretStored"]
    assert event.identity == "operator/mallory"
    assert event.source.startswith("127.0.0.1:")
    await mallory.channel.close()


async def test_a_call_through_a_standby_names_the_caller_of_the_standby(root: Root) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas = Replicas(store)
    try:
        for name in ("s1", "s2"):
            control = await replicas.add(
                tls=root.tls(Role.SCHEDULER, name), user=root.tls(Role.OPERATOR, "alice")
            )
        await until_standby(control)
        assert (await control.apply("web")).success
        response = await control.stub.ListEvents(
            pb.ListEventsRequest(kinds=["WorkloadCreated"]), timeout=10
        )
        (event,) = response.events
        assert event.identity == OPERATOR
        assert event.source.startswith("127.0.0.1:")
    finally:
        await replicas.close()
        await store.close()


async def test_later_events_do_not_name_the_caller(cluster: Cluster, root: Root) -> None:
    await populated(cluster, root)
    running = [one for one in await events(cluster, 0) if one.kind == "WorkloadRunning"]

    assert [one.identity for one in running] == [""]


async def test_an_exec_is_served_while_nothing_can_be_stored(cluster: Cluster, root: Root) -> None:
    await populated(cluster, root)
    cluster.store.down = True
    await cluster.control.apply("first")  # this call detects the outage

    call = cluster.control.stub.Exec(exec_messages(), timeout=20)

    async with asyncio.timeout(timedelta(seconds=20).total_seconds()):
        assert (await call.read()).HasField("exit")
