"""Abuse: unauthenticated clients cannot load the gateway, and identities cannot affect each other."""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from builders import owned_work
from persys.core.intent.gitops import Push
from persys.gateway.audit import AuditEntry as Line
from persys.gateway.audit import AuditLog, surplus_of
from persys.gateway.database import MEMORY, Database
from persys.gateway.http.authentication import Authenticator, TokenVerifier
from persys.gateway.http.middleware import RequestContext, RequestPipeline
from persys.gateway.http.rate_limit import RateLimiter
from persys.gateway.metrics import Metrics
from persys.gateway.upstream.cluster import Cluster, RpcResponse
from persys.gateway.upstream.config import ClusterEntry, SchedulerEntry
from persys.gateway.webhooks.push_queue import PushQueue
from persys.gateway.webhooks.redeploy import PushProcessor
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.net.http_server import HttpServer
from persys.infra.net.listener import HttpLimits
from persys.infra.rpc.grpc_server import new_channel
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.gateway.running_gateway import (
    RunningGateway,
    a_container,
    a_gateway,
    client_context,
    quiet,
    request_as,
)
from shells.scheduler.harness import Cluster as Scheduler

WEB = "/api/v1/workloads/web"
DEADLINE_SECONDS = 30.0
LARGE = 4 * 1024 * 1024


def an_invalid_token(number: int = 1) -> dict[str, str]:
    return {"Authorization": f"Bearer psk_{number:016x}_{number:064x}"}


async def audited(api: RunningGateway, root: Root) -> list[dict[str, str]]:
    _, response = await request_as(api, root, Role.ADMIN, "GET", "/api/v1/audit?limit=1000")
    found: list[dict[str, str]] = response["entries"]
    return found


@pytest.mark.parametrize("path", [WEB, "/api/v1/specs/parse", "/workloads/schedule"])
async def test_a_made_up_token_is_refused_before_its_body_is_sent(
    secure_api: RunningGateway, root: Root, path: str
) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", secure_api.gateway.port, ssl=client_context(root)
    )
    try:
        method = "PUT" if path == WEB else "POST"
        head = [
            f"{method} {path} HTTP/1.1",
            "Host: a",
            f"Content-Length: {LARGE}",
            f"Authorization: {an_invalid_token()['Authorization']}",
        ]
        writer.write("\r\n".join([*head, "", ""]).encode())

        async with asyncio.timeout(DEADLINE_SECONDS):
            response = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert response.startswith(b"http/1.1 401")
        assert b"connection: close" in response
    finally:
        writer.close()


async def test_a_valid_token_sends_its_body(
    secure_api: RunningGateway, root: Root, secure_scheduler: Scheduler
) -> None:
    created = await secure_scheduler.control.stub.CreateToken(
        pb.CreateTokenRequest(name="ci", role="operator"), timeout=10
    )
    bearer = {"Authorization": f"Bearer {created.secret}"}

    status, _ = await secure_api.ask(
        "PUT", WEB, ssl=client_context(root), headers=bearer, json=a_container()
    )

    assert status == 200


async def test_unauthenticated_requests_are_not_audited(
    secure_api: RunningGateway, root: Root
) -> None:
    await request_as(secure_api, root, Role.OPERATOR, "PUT", WEB, json=a_container())
    for number in range(30):
        elsewhere = {"Origin": "https://evil.example", **an_invalid_token(number)}
        await secure_api.ask("DELETE", WEB, ssl=client_context(root), headers=elsewhere)
        await secure_api.ask(
            "DELETE", WEB, ssl=client_context(root), headers=an_invalid_token(number)
        )
        await secure_api.ask(
            "PUT", WEB, ssl=client_context(root), headers=an_invalid_token(number), data=b"{"
        )
        await secure_api.ask(
            "DELETE", "/api/v1/clusters/none/workloads/x", ssl=client_context(root)
        )

    assert [line["who"] for line in await audited(secure_api, root)] == ["operator/alice"]


async def test_refused_cross_site_requests_are_counted(
    secure_api: RunningGateway, root: Root
) -> None:
    elsewhere = {"Origin": "https://evil.example"}
    for _ in range(3):
        status, _ = await request_as(secure_api, root, Role.ADMIN, "DELETE", WEB, headers=elsewhere)
        assert status == 403

    files = root.write(Role.ADMIN, "alice")
    async with secure_api.session.get("/metrics", ssl=client_context(root, files)) as response:
        assert "persys_gateway_cross_site_refused_total 3.0" in await response.text()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://127.0.0.1:1"])
async def test_a_cross_site_websocket_is_refused(
    secure_api: RunningGateway, root: Root, origin: str
) -> None:
    files = root.write(Role.ADMIN, "alice")
    headers = {
        "Origin": origin,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with secure_api.session.get(
        f"{WEB}/exec", ssl=client_context(root, files), headers=headers
    ) as response:
        assert response.status == 403


async def test_one_identity_cannot_displace_audit_entries_of_another() -> None:
    database = Database(MEMORY)
    now = SystemClock().now()
    async with owned_work() as owned:
        audit = AuditLog(database, owned, keep=20)

        async def note(who: str, status: int, count: int) -> None:
            for number in range(count):
                await audit.record(Line(now, who, "", "Apply", "c", f"w{number}", status, ""))

        await note("operator/ann", 200, 5)
        await note("operator/eve", 200, 100)
        await note("operator/eve", 403, 100)
    kept = Counter(
        (line.entry.who, line.entry.status) for line in await audit.lines(limit=100, before=0)
    )
    await database.close()

    assert kept[("operator/ann", 200)] == 5
    assert kept[("operator/eve", 200)] >= 7
    assert kept.total() == 20


async def test_audit_shares_survive_a_restart(tmp_path: Path) -> None:
    where = str(tmp_path / "audit.db")
    now = SystemClock().now()
    for who, count in (("ann", 3), ("eve", 30)):
        database = Database(where)
        async with owned_work() as owned:
            audit = AuditLog(database, owned, keep=10)
            for number in range(count):
                await audit.record(Line(now, who, "", "Apply", "c", f"w{number}", 200, ""))
        await database.close()

    with sqlite3.connect(where) as file:
        rows = dict(file.execute("SELECT who, count(*) FROM deeds GROUP BY who").fetchall())
    file.close()
    assert rows == {"ann": 3, "eve": 7}


counts = st.dictionaries(
    st.tuples(st.sampled_from("abcdefgh"), st.booleans()), st.integers(1, 500), max_size=16
)


@given(counts, st.integers(1, 1000))
def test_only_identities_with_the_most_entries_lose_some(
    lines: dict[tuple[str, bool], int], keep: int
) -> None:
    before = Counter(lines)
    surplus = surplus_of(before, keep)
    after = before - surplus

    assert after.total() == min(keep, before.total())
    most = max(after.values(), default=0)
    for key, lost in surplus.items():
        assert lost > 0
        assert after[key] >= most - 1


@pytest.fixture
async def owned() -> AsyncIterator[OwnedWork]:
    async with owned_work() as running:
        yield running


@pytest.fixture
async def failing(owned: OwnedWork) -> AsyncIterator[tuple[str, Supervisor]]:
    """Routes with a bug in the handler: before the response, and in the middle of it."""
    clock, metrics = SystemClock(), Metrics({}, None)
    supervisor = Supervisor("gateway", clock, metrics.registry)
    database = Database(MEMORY)
    pipeline = RequestPipeline(
        {},
        "default",
        identities=Authenticator(None, clock),
        token_verifier=TokenVerifier(clock),
        rates=RateLimiter(clock, per_second=0.0, burst=1),
        audit=AuditLog(database, owned, keep=10),
        clock=clock,
        metrics=metrics,
        supervisor=supervisor,
        owned=owned,
    )

    async def fail(ask: RequestContext) -> web.StreamResponse:
        raise RuntimeError("a defect")

    async def fail_later(ask: RequestContext) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(ask.request)
        await response.write(b"part")
        raise RuntimeError("a defect")

    app = web.Application()
    app.router.add_post("/fail", pipeline.serve(fail, changes="Fail"))
    app.router.add_get("/fail-later", pipeline.serve(fail_later))
    server = HttpServer(app, limits=HttpLimits(closing_seconds=1.0), context=None)
    port = await server.start("127.0.0.1", 0)
    yield f"http://127.0.0.1:{port}", supervisor
    await server.stop()
    await database.close()


async def test_an_unexpected_exception_is_a_problem_with_a_request_id(
    failing: tuple[str, Supervisor],
) -> None:
    base, supervisor = failing
    async with aiohttp.ClientSession(base) as session:
        for _ in range(2):
            async with session.post("/fail", headers={"X-Request-ID": "r1"}) as response:
                problem = await response.json(content_type=None)
                assert response.content_type == "application/problem+json"
                assert (response.status, problem["request_id"]) == (500, "r1")
                assert "a defect" not in problem["detail"]

    (error,) = supervisor.recent()
    assert (error.component, error.where, error.key, error.count) == (
        "gateway",
        "request",
        "POST /fail",
        2,
    )


async def test_an_exception_during_a_response_closes_the_connection(
    failing: tuple[str, Supervisor],
) -> None:
    base, supervisor = failing
    async with aiohttp.ClientSession(base) as session:
        with pytest.raises(aiohttp.ClientError):
            async with session.get("/fail-later") as response:
                await response.read()

    assert len(supervisor.recent()) == 1


class DefectiveCluster(Cluster):
    async def call(self, *_: object, **__: object) -> RpcResponse:
        raise RuntimeError("a defect")


async def test_an_unexpected_exception_fails_one_push_only(owned: OwnedWork) -> None:
    clock = SystemClock()
    supervisor = Supervisor("gateway", clock, CollectorRegistry())
    database = Database(MEMORY)
    entry = ClusterEntry("default", schedulers=(SchedulerEntry("127.0.0.1:1"),))
    clusters = {"default": DefectiveCluster(entry, new_channel, clock, lambda name: ())}
    pushes = PushQueue(database, clock, clusters, owned)
    gitops = PushProcessor(clusters, clock, AuditLog(database, owned, keep=10), pushes, supervisor)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(gitops.run())
        for delivery in ("d1", "d2"):
            push = Push("github.com/acme/shop", delivery, True, "c", delivery)
            await pushes.enqueue(push, (delivery,), 60.0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(supervisor.recent()) < 2:  # noqa: ASYNC110 - no event signals it
                await asyncio.sleep(0.01)
        running.cancel()
    await clusters["default"].close()
    await database.close()

    assert {error.key for error in supervisor.recent()} == {"default/d1", "default/d2"}


async def test_a_delivery_without_a_signature_is_refused_before_its_body_is_sent(
    secure_scheduler: Scheduler,
) -> None:
    hooks = ({"repository": "acme/shop", "secret": "s3cret"},)
    address = f"127.0.0.1:{secure_scheduler.settings.grpc_port}"
    async with a_gateway(quiet(scheduler_addr=(address,), webhooks=hooks)) as api:
        for signature, status in (("", b"400"), ("X-Hub-Signature-256: made-up\r\n", b"401")):
            reader, writer = await asyncio.open_connection("127.0.0.1", api.gateway.public_port)
            head = f"POST /webhooks/github HTTP/1.1\r\nHost: a\r\nContent-Length: {LARGE}\r\n"
            writer.write(f"{head}X-GitHub-Delivery: d1\r\n{signature}\r\n".encode())
            async with asyncio.timeout(DEADLINE_SECONDS):
                response = await reader.readuntil(b"\r\n\r\n")
            assert response.split()[1] == status
            writer.close()
