"""Attacks on a scheduler and operational faults: stolen keys, wrong clocks.

docs/explanation/security.md names the test of each attack.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import grpc
import msgspec
import pytest

from persys.core.auth.permissions import ROLES
from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import FORWARDED_CERTIFICATE, FORWARDED_IDENTITY
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc
from persys.wire.methods import METHODS
from root_ca import LIFETIME, RevocationList, Root
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.replicas import Replicas

DENIED = grpc.StatusCode.PERMISSION_DENIED
SERVICE = pb.DESCRIPTOR.services_by_name["AgentControl"]
OVERSIZED = 4 << 20


@asynccontextmanager
async def open_stub(endpoint: str, tls: Tls) -> AsyncIterator[control_pb2_grpc.AgentControlStub]:
    channel = tls.channel(endpoint, Role.SCHEDULER)
    yield control_pb2_grpc.AgentControlStub(channel)
    await channel.close()


def address_of(secure: Cluster) -> str:
    return f"127.0.0.1:{secure.settings.grpc_port}"


def a_registration(name: str) -> pb.RegisterNodeRequest:
    room = pb.NodeCapabilities(
        cpu_total_millicores=1000, memory_total_mb=1000, supported_workload_types=["container"]
    )
    return pb.RegisterNodeRequest(node_id=name, grpc_endpoint="127.0.0.1:1", capabilities=room)


async def refusal(call: grpc.aio.UnaryUnaryCall[object, object]) -> str:
    """Why it was denied; empty if it was not."""
    code = await call.code()
    assert code in (DENIED, grpc.StatusCode.OK), code
    return str(await call.details() or "denied") if code is DENIED else ""


async def until_refused(stub: control_pb2_grpc.AgentControlStub) -> str:
    told = ""

    async def refused() -> bool:
        nonlocal told
        told = await refusal(stub.GetIdentity(pb.GetIdentityRequest(), timeout=10))
        return bool(told)

    await eventually(refused, lambda: "the certificate to be refused")
    return told


async def opened(stub: control_pb2_grpc.AgentControlStub, node: str) -> Any:
    stream = stub.ControlStream(timeout=30)
    await stream.write(pb.ControlMessage(register=a_registration(node)))
    assert (await stream.read()).registered.accepted
    return stream


async def ended(stream: Any, node: str) -> str:
    """Why the stream ended at its next message."""
    with suppress(asyncio.InvalidStateError):  # ended before the message was written
        heartbeat = pb.HeartbeatRequest(node_id=node)
        await stream.write(pb.ControlMessage(heartbeat=heartbeat, number=1))
    assert await stream.code() is DENIED
    return str(await stream.details())


async def test_a_revoked_certificate_is_refused_and_its_stream_ends_at_the_next_message(
    secure: Cluster, root: Root, listed: RevocationList
) -> None:
    stolen = root.tls(Role.AGENT, "n1")
    async with open_stub(address_of(secure), stolen) as stub:
        stream = await opened(stub, "n1")
        listed.revoke(stolen)
        assert "revoked" in await until_refused(stub)
        assert "revoked" in await ended(stream, "n1")
    async with open_stub(address_of(secure), root.tls(Role.AGENT, "n1")) as stub:
        assert (await stub.RegisterNode(a_registration("n1"), timeout=10)).accepted


async def test_a_watch_with_a_revoked_certificate_ends_at_the_next_event(
    secure: Cluster, root: Root, listed: RevocationList
) -> None:
    eve = root.tls(Role.VIEWER, "eve")
    async with (
        open_stub(address_of(secure), eve) as stub,
        open_stub(address_of(secure), root.tls(Role.AGENT, "n1")) as node,
    ):
        await node.RegisterNode(a_registration("n1"), timeout=10)
        watch = stub.WatchEvents(pb.WatchEventsRequest(after_sequence=0), timeout=30)
        assert (await watch.read()).node_id == "n1"
        listed.revoke(eve)
        await until_refused(stub)
        await secure.control.stub.CordonNode(pb.NodeRequest(node_id="n1"), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as err:
            await watch.read()
        assert err.value.code() is DENIED


async def test_a_stolen_key_of_a_removed_node_is_refused_also_after_a_restart(
    secure: Cluster, root: Root
) -> None:
    stolen = root.tls(Role.AGENT, "n1")
    async with open_stub(address_of(secure), stolen) as stub:
        stream = await opened(stub, "n1")
        removed = await secure.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
        assert removed.accepted
        assert "was removed" in await ended(stream, "n1")
        assert "new token" in await refusal(stub.RegisterNode(a_registration("n1"), timeout=10))
        again = root.tls(Role.AGENT, "n1")
        await secure.stop()
        await secure.start()
        assert "was removed" in await until_refused(stub)
    async with open_stub(address_of(secure), again) as stub:
        assert (await stub.RegisterNode(a_registration("n1"), timeout=10)).accepted
    async with open_stub(address_of(secure), stolen) as stub:
        assert "was removed" in await until_refused(stub)


async def test_a_standby_refuses_removed_nodes_and_revoked_certificates(
    root: Root, listed: RevocationList
) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas, user = Replicas(store), root.tls(Role.ADMIN, "me")
    try:
        first = await replicas.add(tls=root.tls(Role.SCHEDULER, "s1"), user=user)
        lists = [listed.read_often()]
        await replicas.add(tls=root.tls(Role.SCHEDULER, "s2", lists=lists), user=user)
        removed, revoked = root.tls(Role.AGENT, "n1"), root.tls(Role.AGENT, "n2")
        async with (
            open_stub(replicas.endpoints[1], removed) as one,
            open_stub(replicas.endpoints[1], revoked) as other,
        ):
            streams = await opened(one, "n1"), await opened(other, "n2")
            await first.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
            listed.revoke(revoked)
            await until_refused(other)
            assert "was removed" in await ended(streams[0], "n1")
            assert "revoked" in await ended(streams[1], "n2")
            assert await refusal(one.RegisterNode(a_registration("n1"), timeout=10))
    finally:
        await replicas.close()
        await store.close()


async def test_a_leader_checks_the_certificate_that_was_presented_to_the_standby(
    secure: Cluster, root: Root
) -> None:
    """Also if the standby does not know of the removal; only a scheduler may forward a certificate."""
    node = root.tls(Role.AGENT, "n1")
    async with open_stub(address_of(secure), node) as stub:
        await stub.RegisterNode(a_registration("n1"), timeout=10)
    await secure.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)
    claims = node.certificates.current.claims
    output = (
        (FORWARDED_IDENTITY, "agent/n1"),
        (FORWARDED_CERTIFICATE, msgspec.json.encode(claims)),
    )
    async with open_stub(address_of(secure), root.tls(Role.SCHEDULER, "s2")) as stub:
        call = stub.RegisterNode(a_registration("n1"), timeout=10, metadata=output)
        assert "was removed" in await refusal(call)
        garbage = ((FORWARDED_IDENTITY, "agent/n1"), (FORWARDED_CERTIFICATE, b"{"))
        call = stub.RegisterNode(a_registration("n1"), timeout=10, metadata=garbage)
        assert "cannot be read" in await refusal(call)


async def test_a_node_behind_a_standby_that_does_not_renew_is_an_event(root: Root) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas, user = Replicas(store), root.tls(Role.ADMIN, "me")
    late = Tls(root.write(Role.AGENT, "n1", age=LIFETIME - timedelta(hours=1)), SystemClock())
    try:
        first = await replicas.add(tls=root.tls(Role.SCHEDULER, "s1"), user=user)
        await replicas.add(tls=root.tls(Role.SCHEDULER, "s2"), user=user)
        async with open_stub(replicas.endpoints[1], late) as stub:
            await stub.RegisterNode(a_registration("n1"), timeout=10)
            await stub.Heartbeat(pb.HeartbeatRequest(node_id="n1"), timeout=10)
        request = pb.ListEventsRequest(kinds=["NodeCertificateExpires"])
        (event,) = (await first.stub.ListEvents(request, timeout=10)).events
        assert event.node_id == "n1"
    finally:
        await replicas.close()
        await store.close()


@pytest.mark.parametrize("days", [2, -2], ids=["ahead", "behind"])
async def test_a_scheduler_whose_clock_is_two_days_off_refuses_all_until_it_is_correct(
    secure: Cluster, days: int
) -> None:
    user = secure.control.stub
    secure.clock.ahead = timedelta(days=days)
    error = await refusal(user.GetIdentity(pb.GetIdentityRequest(), timeout=10))
    assert "expired or not yet valid" in error
    secure.clock.ahead = timedelta()
    assert not await refusal(user.GetIdentity(pb.GetIdentityRequest(), timeout=10))


async def test_handshakes_that_are_too_large_do_not_affect_others(secure: Cluster) -> None:
    record = b"\x16\x03\x01\xff\xff" + b"\x01\xff\xff\xff" + b"\0" * 0xFFFB
    for _ in range(8):
        with socket.create_connection(("127.0.0.1", secure.settings.grpc_port), 5) as one:
            one.settimeout(5)
            with suppress(OSError):  # cut while it is sent
                await asyncio.to_thread(one.sendall, record * (OVERSIZED // len(record)))
    assert not await refusal(secure.control.stub.GetIdentity(pb.GetIdentityRequest(), timeout=10))


async def test_a_handshake_that_trickles_is_cut(secure: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", secure.settings.grpc_port)

    async def send_slowly() -> None:
        writer.write(b"\x16\x03\x01\x02\x00")
        with suppress(ConnectionError):
            while True:
                writer.write(b"\x01")
                await writer.drain()
                await asyncio.sleep(0.2)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        slow = group.create_task(send_slowly())
        with suppress(ConnectionError):
            while await reader.read(1024):
                pass
        slow.cancel()
    writer.close()


def methods_beyond(role: Role) -> list[str]:
    return [row.name for row in METHODS.values() if row.permission not in ROLES[role]]


async def status_code_of(stub: control_pb2_grpc.AgentControlStub, name: str) -> grpc.StatusCode:
    method = SERVICE.methods_by_name[name]
    # The reason is lost if the refusal crosses a request, so only one request is sent.
    requests = [] if method.client_streaming else [getattr(pb, method.input_type.name)()]
    call = getattr(stub, name)(*requests, timeout=10)
    return await call.code()  # type: ignore[no-any-return]


async def test_promise_13_a_viewer_only_reads(secure: Cluster, root: Root) -> None:
    async with open_stub(address_of(secure), root.tls(Role.VIEWER, "eve")) as stub:
        for name in methods_beyond(Role.VIEWER):
            assert await status_code_of(stub, name) is DENIED, name
        assert not await refusal(stub.ListNodes(pb.ListNodesRequest(), timeout=10))


async def test_promise_13_an_agent_acts_only_as_its_own_node(secure: Cluster, root: Root) -> None:
    async with open_stub(address_of(secure), root.tls(Role.AGENT, "n1")) as stub:
        for name in methods_beyond(Role.AGENT):
            assert await status_code_of(stub, name) is DENIED, name
        assert (await stub.RegisterNode(a_registration("n1"), timeout=10)).accepted
        for call in (
            stub.RegisterNode(a_registration("n2"), timeout=10),
            stub.Heartbeat(pb.HeartbeatRequest(node_id="n2"), timeout=10),
        ):
            assert "may not act for node 'n2'" in await refusal(call)
        stream = await opened(stub, "n1")
        assert "may not act for node 'n2'" in await ended(stream, "n2")
