"""Access tokens of users at a scheduler: what they allow, and when they are refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import grpc
import pytest
import structlog

from persys.core.auth import tokens
from persys.infra.clock import SystemClock
from persys.infra.rpc.authorizer import FORWARDED_IDENTITY
from persys.model.identity import Role
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc
from root_ca import Root
from shells.scheduler.api.test_logs_exec import ENDLESS, LogsAgent
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually, fast_settings
from shells.scheduler.replicas import Replicas, until_leading, until_standby
from shells.scheduler.stores import FaultyStore

Stub = control_pb2_grpc.AgentControlStub


@pytest.fixture
async def cluster(root: Root) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, fast_settings(), tls=tls, user=user) as running:
        yield running
    await store.store.close()


@asynccontextmanager
async def as_one(cluster: Cluster, root: Root, role: Role, name: str) -> AsyncIterator[Stub]:
    control = Control(cluster.settings.grpc_port, root.tls(role, name))
    yield control.stub
    await control.channel.close()


def bearer(text: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {text}"),)


async def made(
    stub: Stub, role: str = "operator", *deeds: str, seconds: int = 0, text: str = ""
) -> pb.CreateTokenResponse:
    request = pb.CreateTokenRequest(name="ops", role=role, deeds=deeds, ttl_seconds=seconds)
    metadata = bearer(text) if text else ()
    response: pb.CreateTokenResponse = await stub.CreateToken(
        request, timeout=10, metadata=metadata
    )
    return response


async def whoami(stub: Stub, *metadata: tuple[str, str]) -> pb.IdentityView:
    call = stub.GetIdentity(pb.GetIdentityRequest(), timeout=10, metadata=metadata)
    found: pb.IdentityView = await call
    return found


async def code_of(call: grpc.aio.UnaryUnaryCall[object, object]) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as err:
        return err.code()
    return grpc.StatusCode.OK


async def code(stub: Stub, *metadata: tuple[str, str]) -> grpc.StatusCode:
    return await code_of(stub.ListNodes(pb.ListNodesRequest(), timeout=10, metadata=metadata))


async def test_a_caller_with_a_token_has_the_identity_of_the_token(
    cluster: Cluster, root: Root
) -> None:
    token = await made(cluster.control.stub, "operator", "read", "workloads")
    assert token.accepted, token.reason
    async with as_one(cluster, root, Role.VIEWER, "eve") as stub:
        found = await whoami(stub, *bearer(token.secret))
        assert (found.role, found.name, found.token_id) == ("operator", "ops", token.token.token_id)
        assert list(found.deeds) == ["anyone", "read", "workloads"]
        assert found.expires_at == token.token.expires_at
        own = await whoami(stub)
        assert (own.role, own.token_id) == ("viewer", "")


async def test_a_token_allows_only_its_scope(cluster: Cluster, root: Root) -> None:
    token = await made(cluster.control.stub, "operator", "read")
    own = bearer(token.secret)
    request = pb.DeleteWorkloadRequest(workload_id="w")
    async with as_one(cluster, root, Role.ADMIN, "you") as stub:
        assert await code(stub, *own) is grpc.StatusCode.OK
        call = stub.DeleteWorkload(request, timeout=10, metadata=own)
        assert await code_of(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_an_unknown_token_is_refused(cluster: Cluster) -> None:
    stub = cluster.control.stub
    good = (await made(stub)).secret
    forged = good[:-64] + "0" * 64
    for text in (forged, "psk_", "", good[:-1], "psk_" + "0" * 16 + "_" + "0" * 64):
        assert await code(stub, *bearer(text)) is grpc.StatusCode.UNAUTHENTICATED
    basic = (("authorization", f"Basic {good}"),)
    assert await code(stub, *basic) is grpc.StatusCode.UNAUTHENTICATED
    assert await code(stub, *bearer(good), *bearer(good)) is grpc.StatusCode.UNAUTHENTICATED
    assert await code(stub, *bearer(good)) is grpc.StatusCode.OK


async def test_an_expired_or_revoked_token_is_refused(cluster: Cluster) -> None:
    stub = cluster.control.stub
    short_lived, long_lived = await made(stub, seconds=60), await made(stub)
    assert await code(stub, *bearer(short_lived.secret)) is grpc.StatusCode.OK
    cluster.clock.ahead = timedelta(seconds=61)
    assert await code(stub, *bearer(short_lived.secret)) is grpc.StatusCode.UNAUTHENTICATED
    assert await code(stub, *bearer(long_lived.secret)) is grpc.StatusCode.OK

    request = pb.RevokeTokenRequest(token_id=long_lived.token.token_id)
    assert (await stub.RevokeToken(request, timeout=10)).accepted
    assert await code(stub, *bearer(long_lived.secret)) is grpc.StatusCode.UNAUTHENTICATED
    again = await stub.RevokeToken(request, timeout=10)
    assert (again.accepted, "not found" in again.reason) == (False, True)


async def test_a_token_that_is_revoked_twice_at_once_is_revoked_once(cluster: Cluster) -> None:
    stub = cluster.control.stub
    request = pb.RevokeTokenRequest(token_id=(await made(stub)).token.token_id)
    cluster.store.commit_seconds = 0.1

    responses = await asyncio.gather(*(stub.RevokeToken(request, timeout=10) for _ in range(2)))

    assert sorted(response.accepted for response in responses) == [False, True]


async def test_of_two_new_tokens_at_once_one_is_refused_at_the_limit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "COUNT_MAX", 1)
    cluster.store.commit_seconds = 0.1

    responses = await asyncio.gather(*(made(cluster.control.stub) for _ in range(2)))

    assert sorted(bool(response.secret) for response in responses) == [False, True]


async def read_to_end(watch: grpc.aio.UnaryStreamCall[object, object]) -> None:
    while await watch.read() is not grpc.aio.EOF:
        pass


async def test_a_stream_ends_when_its_token_is_revoked(cluster: Cluster) -> None:
    stub = cluster.control.stub
    token = await made(stub)
    request = pb.WatchEventsRequest(after_sequence=0)
    watch = stub.WatchEvents(request, timeout=20, metadata=bearer(token.secret))
    assert (await watch.read()).kind
    await stub.RevokeToken(pb.RevokeTokenRequest(token_id=token.token.token_id), timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as err:
        await read_to_end(watch)
    assert err.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_log_that_is_read_ends_when_its_token_is_revoked(
    cluster: Cluster, root: Root
) -> None:
    node = await cluster.prepare("n1", tls=root.tls(Role.AGENT, "n1"))
    await node.agent.stop()
    node.agent = LogsAgent()
    node.agent.credentials = root.tls(Role.AGENT, "n1").certificates.server_credentials()
    await node.agent.start()
    await node.join()
    await cluster.control.apply(ENDLESS)
    await cluster.control.until(ENDLESS, "Running")
    stub = cluster.control.stub
    token = await made(stub)
    request = pb.LogsRequest(workload_id=ENDLESS, follow=True)
    logs = stub.StreamLogs(request, timeout=20, metadata=bearer(token.secret))
    assert (await logs.read()).data == b"out\n"
    await stub.RevokeToken(pb.RevokeTokenRequest(token_id=token.token.token_id), timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as err:
        await read_to_end(logs)
    assert err.value.code() is grpc.StatusCode.UNAUTHENTICATED
    async with asyncio.timeout(10):
        await node.agent.left.wait()


async def test_expired_tokens_are_deleted_with_the_next_one(cluster: Cluster) -> None:
    stub = cluster.control.stub
    await made(stub, seconds=60)
    cluster.clock.ahead = timedelta(hours=1)
    listed = await stub.ListTokens(pb.ListTokensRequest(), timeout=10)
    assert len(listed.tokens) == 1
    last = await made(stub)
    listed = await stub.ListTokens(pb.ListTokensRequest(), timeout=10)
    assert [one.token_id for one in listed.tokens] == [last.token.token_id]
    stored = await cluster.store.read(keys.TOKENS)
    assert [one.key for one in stored.records] == [keys.token_key(last.token.token_id)]


async def test_tokens_outlive_a_restart_and_their_secret_is_written_nowhere(
    cluster: Cluster,
) -> None:
    with structlog.testing.capture_logs() as logs:
        token = await made(cluster.control.stub)
        wrong = token.secret[:-1] + "x"
        await code(cluster.control.stub, *bearer(wrong))
    await cluster.stop()
    await cluster.start()
    assert await code(cluster.control.stub, *bearer(token.secret)) is grpc.StatusCode.OK
    secret = token.secret.rpartition("_")[2]
    stored = await cluster.store.read("/")
    assert not any(secret.encode() in record.value for record in stored.records)
    assert secret[:-1] not in str(logs)


async def test_an_agent_certificate_with_a_user_token_is_refused(
    cluster: Cluster, root: Root
) -> None:
    token = await made(cluster.control.stub, "admin")
    async with as_one(cluster, root, Role.AGENT, "n1") as stub:
        assert await code(stub, *bearer(token.secret)) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_cannot_exceed_the_permissions_of_its_creator(cluster: Cluster) -> None:
    stub = cluster.control.stub
    narrow = await made(stub, "admin", "tokens", "read", seconds=600)
    refused = await made(stub, "operator", text=narrow.secret)
    assert (refused.accepted, refused.secret) == (False, "")
    assert "workloads" in refused.reason
    child = await made(stub, "viewer", "read", text=narrow.secret)
    assert child.accepted, child.reason
    assert child.token.expires_at.seconds <= narrow.token.expires_at.seconds
    operator = await made(stub, "operator")
    call = stub.CreateToken(
        pb.CreateTokenRequest(name="x", role="viewer"),
        timeout=10,
        metadata=bearer(operator.secret),
    )
    assert await code_of(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_an_invalid_token_request_is_refused_with_the_field(cluster: Cluster) -> None:
    stub = cluster.control.stub
    for role, deeds, seconds, word in (
        ("agent", (), 0, "role:"),
        ("viewer", ("exec",), 0, "deeds:"),
        ("viewer", (), 1, "ttl:"),
        ("viewer", (), 2**62, "ttl:"),
        ("viewer", (), -1, "ttl:"),
    ):
        response = await made(stub, role, *deeds, seconds=seconds)
        assert (response.accepted, response.reason.startswith(word)) == (False, True), (
            response.reason
        )


async def test_a_gateway_forwards_only_users_and_a_token_takes_precedence(
    cluster: Cluster, root: Root
) -> None:
    viewer = await made(cluster.control.stub, "viewer")
    for_admin = (FORWARDED_IDENTITY, "admin/alice")
    async with as_one(cluster, root, Role.GATEWAY, "g1") as stub:
        found = await whoami(stub, for_admin)
        assert (found.role, found.name) == ("admin", "alice")
        assert "workloads" in found.deeds
        for identity in ("agent/n1", "scheduler/s1", "gateway/g2", "nonsense"):
            status_code = await code(stub, (FORWARDED_IDENTITY, identity))
            assert status_code is grpc.StatusCode.PERMISSION_DENIED
        both = await whoami(stub, for_admin, *bearer(viewer.secret))
        assert (both.role, both.name) == ("viewer", "ops")
    async with as_one(cluster, root, Role.OPERATOR, "mallory") as stub:
        assert (await whoami(stub, for_admin)).role == "operator"


async def test_creating_and_revoking_a_token_are_events(cluster: Cluster) -> None:
    stub = cluster.control.stub
    token = (await made(stub)).token
    await stub.RevokeToken(pb.RevokeTokenRequest(token_id=token.token_id), timeout=10)
    request = pb.ListEventsRequest(kinds=["TokenCreated", "TokenRevoked"])
    events = (await stub.ListEvents(request, timeout=10)).events
    assert [event.kind for event in events] == ["TokenCreated", "TokenRevoked"]
    assert all(token.token_id in event.message for event in events)
    assert all("by admin/me" in event.message for event in events)


async def test_a_standby_authenticates_tokens_and_the_leader_checks_them_again(root: Root) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas = Replicas(store)
    user = root.tls(Role.ADMIN, "me")
    try:
        first = await replicas.add(tls=root.tls(Role.SCHEDULER, "s1"), user=user)
        await until_leading(first)
        second = await replicas.add(tls=root.tls(Role.SCHEDULER, "s2"), user=user)
        await until_standby(second)
        token = await made(second.stub, "operator", "workloads", "read")
        assert token.accepted, token.reason
        own = bearer(token.secret)
        request = pb.RetryWorkloadRequest(workload_id="w")

        assert (await whoami(second.stub, *own)).role == "operator"
        assert await code(second.stub, *own) is grpc.StatusCode.OK
        retried = await second.stub.RetryWorkload(request, timeout=10, metadata=own)
        assert "not found" in retried.reason
        denied = second.stub.ListTokens(pb.ListTokensRequest(), timeout=10, metadata=own)
        assert await code_of(denied) is grpc.StatusCode.PERMISSION_DENIED

        revoked = pb.RevokeTokenRequest(token_id=token.token.token_id)
        await first.stub.RevokeToken(revoked, timeout=10)

        async def is_refused() -> bool:
            return await code(second.stub, *own) is grpc.StatusCode.UNAUTHENTICATED

        await eventually(is_refused, lambda: "the standby to hear of it")
    finally:
        await replicas.close()
        await store.close()


async def test_the_next_leader_accepts_the_tokens_of_the_last(root: Root) -> None:
    store = MemoryStore(SystemClock().monotonic)
    replicas = Replicas(store)
    user = root.tls(Role.ADMIN, "me")
    try:
        first = await replicas.add(tls=root.tls(Role.SCHEDULER, "s1"), user=user)
        await until_leading(first)
        second = await replicas.add(tls=root.tls(Role.SCHEDULER, "s2"), user=user)
        token = await made(first.stub)
        await replicas.stop(0)
        await until_leading(second)
        assert await code(second.stub, *bearer(token.secret)) is grpc.StatusCode.OK
    finally:
        await replicas.close()
        await store.close()


async def test_with_insecure_tokens_are_ignored_and_cannot_be_created() -> None:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as insecure:
        stub = insecure.control.stub
        response = await made(stub, "admin")
        assert (response.accepted, "-insecure" in response.reason) == (False, True)
        assert await code(stub, *bearer("nonsense")) is grpc.StatusCode.OK
        assert (await whoami(stub, *bearer("nonsense"))).role == ""
    await store.store.close()


async def test_tokens_outlive_the_loss_of_the_store_and_the_rebuild(
    cluster: Cluster, root: Root
) -> None:
    node = await cluster.prepare("n1", tls=root.tls(Role.AGENT, "n1"))
    await node.join()
    stub = cluster.control.stub
    token = await made(stub)
    await cluster.store.wipe()
    refused = await made(stub)
    assert not refused.accepted

    async def in_recovery() -> bool:
        return bool((await stub.GetMode(pb.GetModeRequest(), timeout=10)).mode == "recovery")

    await eventually(in_recovery, lambda: "recovery mode")
    assert await code(stub, *bearer(token.secret)) is grpc.StatusCode.OK

    rebuilt = await stub.RebuildFromAgents(pb.RebuildFromAgentsRequest(), timeout=30)

    assert rebuilt.accepted, rebuilt.reason
    assert await code(stub, *bearer(token.secret)) is grpc.StatusCode.OK
    stored = await cluster.store.read(keys.TOKENS)
    assert [one.key for one in stored.records] == [keys.token_key(token.token.token_id)]
