"""The HTTPS port: clients that send too much, too slowly or nothing."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from persys.ca.api.authorization import AuthorizedRoutes, CaRequest, CaResponse
from persys.ca.api.cfssl import PREFIX
from persys.ca.metrics import Metrics
from persys.core.auth.permissions import CA
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.net.http_server import HttpServer
from persys.infra.net.listener import HttpLimits
from persys.model.identity import NAMES, Identity, Role
from persys.wire.ca.messages import BODY_BYTES_MAX, AuditLine
from shells.ca.running_ca import RunningCa

ROOT = Path(__file__).parents[4]


def trusting_context(ca: RunningCa) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca.ca.authority.keys.roots_pem.decode())
    return context


@asynccontextmanager
async def connection(
    ca: RunningCa, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        ca.ca.port,
        ssl=context or trusting_context(ca),
        server_hostname=f"ca.{NAMES}",
    )
    try:
        yield reader, writer
    finally:
        writer.close()


async def send_without_certificate(
    ca: RunningCa, method: str, path: str, body: bytes = b"{}", *, header: str = "X-A: b"
) -> tuple[int, bytes]:
    """Send a request without a certificate."""
    async with asyncio.timeout(20), connection(ca) as (reader, writer):
        head = f"{method} {path} HTTP/1.1\r\nHost: ca\r\nConnection: close\r\n{header}\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        response = await reader.read()
    head_line, _, rest = response.partition(b"\r\n")
    return int(head_line.split()[1]), rest.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("route", [route for route, action in CA.items() if action is not None])
async def test_routes_that_need_a_certificate_reject_requests_without_one(
    ca: RunningCa, route: str
) -> None:
    method, path = route.split()

    status, body = await send_without_certificate(ca, method, path)

    assert status == 403
    refusal = json.loads(body)
    words = refusal["errors"][0]["message"] if path.startswith(PREFIX) else refusal["error"]
    assert "client certificate of this CA is required" in words


async def test_health_metrics_roots_and_crl_need_no_certificate(ca: RunningCa) -> None:
    status, body = await send_without_certificate(ca, "GET", "/health")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    assert (await send_without_certificate(ca, "GET", "/crl"))[0] == 200
    assert (await send_without_certificate(ca, "GET", "/crl.pem"))[1].startswith(
        b"-----BEGIN X509 CRL"
    )
    assert b"BEGIN CERTIFICATE" in (await send_without_certificate(ca, "GET", "/api/v1/roots"))[1]


async def test_requests_are_counted_and_timed_by_route_and_status(ca: RunningCa) -> None:
    await send_without_certificate(ca, "GET", "/health")
    await send_without_certificate(ca, "GET", "/api/v1/audit")

    status, page = await send_without_certificate(ca, "GET", "/metrics")

    assert status == 200
    samples = dict(line.rsplit(" ", 1) for line in page.decode().splitlines() if line[0] != "#")
    assert samples['persys_ca_requests_total{route="GET /health",status="200"}'] == "1.0"
    assert samples['persys_ca_requests_total{route="GET /api/v1/audit",status="403"}'] == "1.0"
    assert samples['persys_ca_requests_total{route="POST /api/v1/join",status="200"}'] == "0.0"
    assert samples['persys_ca_request_seconds_count{route="GET /health"}'] == "1.0"
    assert float(samples["persys_ca_intermediate_expiry_seconds"]) > 0
    assert float(samples["persys_ca_root_expiry_seconds"]) > 0


async def test_every_ca_metric_is_documented(ca: RunningCa) -> None:
    _, page = await send_without_certificate(ca, "GET", "/metrics")
    exported = set(re.findall(r"^# TYPE (persys_ca_\w+)", page.decode(), re.MULTILINE))
    table = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")

    assert set(re.findall(r"\| `(persys_ca_\w+)` \|", table)) == exported


async def test_a_body_that_is_too_large_is_refused(ca: RunningCa) -> None:
    status, _ = await send_without_certificate(
        ca, "POST", "/api/v1/join", b"x" * (BODY_BYTES_MAX + 1)
    )

    assert status == 413


async def test_a_body_with_a_wrong_content_encoding_is_rejected(ca: RunningCa) -> None:
    status, response = await send_without_certificate(
        ca, "POST", "/api/v1/join", b"xxx", header="Content-Encoding: deflate"
    )

    assert status == 400
    assert b"body" in response


@pytest.mark.parametrize("limit", ["0", "-1", "10001", "x", "²", f"{1:09}{'9' * 30}", "9" * 5000])
async def test_a_limit_out_of_range_is_refused(ca: RunningCa, limit: str) -> None:
    files = await asyncio.to_thread(ca.certificate, Role.ADMIN, "ada")
    context = trusting_context(ca)
    context.load_cert_chain(files.certificate, files.key)
    path = f"/api/v1/audit?limit={quote(limit)}"

    async with asyncio.timeout(20), connection(ca, context) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: ca\r\nConnection: close\r\n\r\n".encode())
        response = await reader.read()

    assert response.startswith(b"HTTP/1.1 400")
    assert b"limit" in response


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"\xff", b'{"id": 1}', b'{"id":"a","secret":"b","csr":"c","more":1}']
)
async def test_an_invalid_body_is_rejected(ca: RunningCa, body: bytes) -> None:
    status, response = await send_without_certificate(ca, "POST", "/api/v1/join", body)

    assert status == 400
    assert json.loads(response)["error"].startswith("body: ")


async def test_plain_http_gets_no_response(ca: RunningCa) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", ca.ca.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: ca\r\n\r\n")

    async with asyncio.timeout(20):
        response = await reader.read()

    assert b"200" not in response
    writer.close()


async def test_tls_before_1_2_is_refused(ca: RunningCa) -> None:
    context = trusting_context(ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    with pytest.raises((ssl.SSLError, ConnectionError)):
        async with connection(ca, context):
            pass


async def test_a_slow_client_is_disconnected_and_others_are_served(
    ca_with_short_timeouts: RunningCa,
) -> None:
    async with connection(ca_with_short_timeouts) as (reader, writer), asyncio.timeout(20):
        writer.write(b"POST /api/v1/join HTTP/1.1\r\nHost: ca\r\nContent-Length: 100\r\n\r\n{")

        assert (await send_without_certificate(ca_with_short_timeouts, "GET", "/health"))[0] == 200
        assert b" 408 " in await reader.readline()


async def test_a_connection_with_endless_headers_is_closed(
    ca_with_short_timeouts: RunningCa,
) -> None:
    async with connection(ca_with_short_timeouts) as (reader, writer), asyncio.timeout(20):
        writer.write(b"POST /api/v1/join HTTP/1.1\r\nX: ")

        assert await until_closed(reader) == b""


async def test_a_stalled_handshake_is_closed(ca_with_short_timeouts: RunningCa) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", ca_with_short_timeouts.ca.port)
    writer.write(b"\x16\x03\x01\x02\x00\x01")  # the start of a handshake

    async with asyncio.timeout(20):
        assert await until_closed(reader) == b""
    writer.close()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """All bytes until the connection ends."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def test_a_thousand_idle_connections_do_not_stop_service(ca: RunningCa) -> None:
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    silent = []
    try:
        for _ in range(1000):
            one = socket.socket()
            one.setblocking(False)
            silent.append(one)
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", ca.ca.port))

        assert (await send_without_certificate(ca, "GET", "/health"))[0] == 200
    finally:
        for one in silent:
            one.close()


async def test_a_body_without_the_certificate_it_needs_is_not_read(ca: RunningCa) -> None:
    async with asyncio.timeout(20), connection(ca) as (reader, writer):
        writer.write(b"POST /api/v1/tokens HTTP/1.1\r\nHost: ca\r\nContent-Length: 60000\r\n\r\n")
        response = (await reader.readuntil(b"\r\n\r\n")).lower()

    assert response.startswith(b"http/1.1 403")
    assert b"connection: close" in response


async def test_anonymous_rejections_do_not_hide_those_of_an_identity(ca: RunningCa) -> None:
    authority = ca.ca.authority
    operator = Identity(Role.OPERATOR, "ann")

    def refuse_many() -> Sequence[AuditLine]:
        for number in range(3_000):
            address = f"10.0.{number // 250}.{number % 250}"
            authority.record_rejection(None, address, "POST /x", "unknown")
        authority.record_rejection(operator, "10.1.1.1", "POST /api/v1/tokens", "may not")
        return authority.database.audit(10_000)

    lines = await ca.on_thread(refuse_many)

    assert sum(line.who.startswith("unknown") for line in lines) <= 50
    assert [line.what for line in lines if line.who == "operator/ann, from 10.1.1.1"] == [
        "POST /api/v1/tokens"
    ]


async def test_an_unexpected_exception_returns_500_and_the_ca_keeps_running(ca: RunningCa) -> None:
    clock = SystemClock()
    supervisor = Supervisor("ca", clock, CollectorRegistry())

    def fail(call: CaRequest) -> CaResponse:
        raise RuntimeError("a defect")

    with ThreadPoolExecutor(1) as thread:
        routes = AuthorizedRoutes(
            ca.ca.authority,
            clock,
            thread=thread,
            handlers=dict.fromkeys(CA, fail),
            request_seconds=10.0,
            supervisor=supervisor,
            metrics=Metrics(clock),
        )
        server = HttpServer(routes.app(), limits=HttpLimits(closing_seconds=1.0), context=None)
        port = await server.start("127.0.0.1", 0)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for _ in range(2):
                async with session.get("/health") as response:
                    assert response.status == 500
                    assert "a defect" not in await response.text()
        await server.stop()

    assert [(error.where, error.key, error.count) for error in supervisor.recent()] == [
        ("request", "GET /health", 2)
    ]
