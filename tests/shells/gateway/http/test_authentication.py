"""Authentication at the gateway's port, and the identity that is forwarded to the scheduler."""

import asyncio
import re
import socket
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from persys.core.auth.permissions import permissions_of
from persys.infra.net.listener import HttpLimits
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS
from persys.wire.rest.routes import API, CONTRACT_ROUTES, ROUTES
from root_ca import Root
from shells.gateway.running_gateway import RunningGateway, a_container, client_context, request_as
from shells.scheduler.harness import Cluster, eventually

SHORT_TIMEOUTS = HttpLimits(handshake_seconds=1.0, idle_seconds=1.0, closing_seconds=1.0)
with_short_timeouts = pytest.mark.parametrize("secure_api", [SHORT_TIMEOUTS], indirect=True)


async def test_an_operator_is_forwarded_under_its_own_identity(
    secure_api: RunningGateway, root: Root, secure_scheduler: Cluster
) -> None:
    status, who = await request_as(secure_api, root, Role.OPERATOR, "GET", "/api/v1/identity")

    assert status == 200
    assert (who["role"], who["name"]) == ("operator", "alice")
    put = await request_as(
        secure_api, root, Role.OPERATOR, "PUT", "/api/v1/workloads/web", json=a_container()
    )
    assert put[0] == 200
    assert await secure_scheduler.control.names() == ["web"]


async def test_a_viewer_reads_and_changes_nothing(secure_api: RunningGateway, root: Root) -> None:
    assert (await request_as(secure_api, root, Role.VIEWER, "GET", "/api/v1/workloads"))[0] == 200
    for method, path in (
        ("DELETE", "/api/v1/workloads/web"),
        ("DELETE", "/workloads/web"),
        ("GET", "/api/v1/snapshot"),
        ("GET", "/api/v1/workloads/web/exec"),
        ("PUT", "/api/v1/images/x"),
    ):
        status, problem = await request_as(secure_api, root, Role.VIEWER, method, path)
        assert status == 403, path
        assert "viewer/alice" in problem["detail"]


def example_path(path: str) -> str:
    """A path of the route table with example values."""
    return re.sub(r"{\w+}", "x", path)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_every_route_requires_the_permission_of_its_rpc(
    secure_api: RunningGateway, root: Root, role: Role
) -> None:
    """A request without permission is refused by the gateway, before the body is read."""
    context = client_context(root, root.write(role, "alice"))
    every = [(API, route) for route in ROUTES] + [("", route) for route in CONTRACT_ROUTES]
    refused = [
        (prefix, route)
        for prefix, route in every
        if METHODS[route.rpc].permission not in permissions_of(role)
    ]

    for prefix, route in refused:
        for within in ("", "/clusters/default"):
            response = await secure_api.ask(
                route.method, prefix + within + example_path(route.path), ssl=context
            )
            assert response[0] == 403, route
    assert refused


async def test_every_route_requires_credentials(secure_api: RunningGateway, root: Root) -> None:
    context = client_context(root)
    own = (
        "/clusters",
        f"{API}/clusters",
        f"{API}/overview",
        f"{API}/audit",
        f"{API}/gitops",
        f"{API}/traefik",
        f"{API}/usage",
    )
    every = [("GET", path) for path in own]
    every += [(route.method, API + example_path(route.path)) for route in ROUTES]
    every += [(route.method, example_path(route.path)) for route in CONTRACT_ROUTES]

    for method, path in every:
        assert (await secure_api.ask(method, path, ssl=context))[0] == 401, path


async def test_the_audit_log_requires_an_admin_or_a_valid_token(
    secure_api: RunningGateway, root: Root, secure_scheduler: Cluster
) -> None:
    assert (await request_as(secure_api, root, Role.ADMIN, "GET", "/api/v1/audit"))[0] == 200
    assert (await request_as(secure_api, root, Role.OPERATOR, "GET", "/api/v1/audit"))[0] == 403
    made_up = {"Authorization": f"Bearer psk_{1:016x}_{1:064x}"}
    for path in ("/clusters", "/api/v1/overview", "/api/v1/audit"):
        status, _ = await request_as(secure_api, root, None, "GET", path, headers=made_up)
        assert status == 401, path


@pytest.mark.parametrize("role", [Role.AGENT, Role.SCHEDULER, Role.GATEWAY])
async def test_only_user_identities_are_accepted(
    secure_api: RunningGateway, root: Root, role: Role
) -> None:
    assert (await request_as(secure_api, root, role, "GET", "/api/v1/workloads"))[0] == 403


async def test_only_health_needs_no_credentials(secure_api: RunningGateway, root: Root) -> None:
    assert (await request_as(secure_api, root, None, "GET", "/health"))[0] == 200
    for path in ("/clusters", "/workloads", "/api/v1/workloads", "/api/v1/events/watch"):
        status, problem = await request_as(secure_api, root, None, "GET", path)
        assert (status, problem["title"]) == (401, "Unauthorized"), path


async def test_a_token_authenticates_without_a_certificate(
    secure_api: RunningGateway, root: Root, secure_scheduler: Cluster
) -> None:
    created = await secure_scheduler.control.stub.CreateToken(
        pb.CreateTokenRequest(name="ann", role="viewer"), timeout=10
    )
    bearer = {"Authorization": f"Bearer {created.secret}"}

    _, who = await request_as(secure_api, root, None, "GET", "/api/v1/identity", headers=bearer)
    refused = await request_as(
        secure_api, root, None, "DELETE", "/api/v1/workloads/web", headers=bearer
    )
    garbled = {"Authorization": f"Bearer {created.secret}x"}

    assert (who["role"], who["name"]) == ("viewer", "ann")
    assert refused[0] == 403
    unknown = await request_as(secure_api, root, None, "GET", "/api/v1/identity", headers=garbled)
    assert unknown[0] == 401


async def test_guessed_tokens_are_rate_limited(secure_api: RunningGateway, root: Root) -> None:
    statuses = []
    for number in range(25):
        bearer = {"Authorization": f"Bearer psk_{number:016x}_{number:064x}"}
        response = await secure_api.get("/api/v1/mode", ssl=client_context(root), headers=bearer)
        statuses.append(response[0])

    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert (await request_as(secure_api, root, Role.VIEWER, "GET", "/api/v1/mode"))[0] == 200


async def test_a_websocket_accepts_a_token_as_subprotocol(
    secure_api: RunningGateway, root: Root, secure_scheduler: Cluster
) -> None:
    created = await secure_scheduler.control.stub.CreateToken(
        pb.CreateTokenRequest(name="ann", role="operator"), timeout=10
    )
    protocols = ("persys.exec.v1", f"bearer.{created.secret}")

    async with secure_api.session.ws_connect(
        "/api/v1/workloads/none/exec?command=x", ssl=client_context(root), protocols=protocols
    ) as socket:
        assert (await socket.receive()).data == 4404
        assert socket.protocol == "persys.exec.v1"


@pytest.mark.parametrize("wrong", ["other root", "expired"])
async def test_an_untrusted_certificate_gets_no_connection(
    secure_api: RunningGateway, root: Root, tmp_path: Path, wrong: str
) -> None:
    if wrong == "expired":
        files = root.write(Role.ADMIN, "late", age=timedelta(days=2))
    else:
        files = Root(tmp_path / "elsewhere").write(Role.ADMIN, "me")

    with pytest.raises(aiohttp.ClientError):
        await secure_api.get("/health", ssl=client_context(root, files))


async def test_plain_http_is_refused(secure_api: RunningGateway) -> None:
    with pytest.raises(aiohttp.ClientError):
        await secure_api.get(f"http://127.0.0.1:{secure_api.gateway.port}/health")


@pytest.mark.parametrize(
    ("version", "gets_in"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)]
)
async def test_only_tls_1_2_and_newer_is_accepted(
    secure_api: RunningGateway, version: str, gets_in: bool
) -> None:
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{secure_api.gateway.port}", "-quiet"),
        *("-cipher", "ALL:@SECLEVEL=0", version),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(10):
        output, _ = await process.communicate(
            b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )

    assert (b" 200 " in output) is gets_in


@with_short_timeouts
async def test_an_idle_connection_is_closed_and_blocks_no_other(
    secure_api: RunningGateway, root: Root
) -> None:
    address = ("127.0.0.1", secure_api.gateway.port)
    with ExitStack() as sockets:
        silent = [sockets.enter_context(socket.create_connection(address, 5)) for _ in range(200)]
        assert (await request_as(secure_api, root, Role.VIEWER, "GET", "/api/v1/mode"))[0] == 200
        for one in silent:
            one.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(10):
            assert await loop.sock_recv(silent[-1], 1) == b""


@with_short_timeouts
async def test_an_incomplete_request_is_closed(secure_api: RunningGateway, root: Root) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", secure_api.gateway.port, ssl=client_context(root)
    )
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n")
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


async def test_new_connections_get_the_renewed_certificate(
    secure_api: RunningGateway, root: Root
) -> None:
    before = await asyncio.to_thread(shown_serial, secure_api, root)
    root.write(Role.GATEWAY, "g1")

    async def swapped() -> bool:
        return await asyncio.to_thread(shown_serial, secure_api, root) != before

    await eventually(swapped, lambda: "the new certificate")
    assert (await request_as(secure_api, root, Role.VIEWER, "GET", "/api/v1/mode"))[0] == 200


def shown_serial(api: RunningGateway, root: Root) -> str:
    with (
        socket.create_connection(("127.0.0.1", api.gateway.port), 5) as plain,
        client_context(root).wrap_socket(plain) as connection,
    ):
        return str((connection.getpeercert() or {})["serialNumber"])
