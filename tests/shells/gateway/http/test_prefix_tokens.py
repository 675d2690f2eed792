"""Tokens with a prefix through a gateway: every route, lists, pages and the gateway's own routes."""

import base64
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import aiohttp
import pytest

from persys.model.identity import Role
from persys.wire.metadata_keys import HOME
from persys.wire.methods import METHODS, Form
from persys.wire.rest.routes import API, CONTRACT_ROUTES, ROUTES, Route
from root_ca import Root
from shells.gateway.running_gateway import (
    RunningGateway,
    a_container,
    a_gateway,
    client_context,
    quiet,
)
from shells.scheduler.auth.test_prefix_tokens import a_token
from shells.scheduler.calls import World
from shells.scheduler.harness import Cluster

OWN, OTHER = "home--web", "web"
# The bodies of requests whose ids are not in the path.
BODIES: dict[str, Any] = {
    "/plan": {"workloads": [{"workload_id": OTHER, **a_container()}]},
    "/workloads": {"workloads": [{"workload_id": OTHER, **a_container()}]},
    "/workloads/schedule": {"workload_id": OTHER, **a_container()},
    "/sets": {"set": {"set_id": OTHER}},
    "/jobs": {"job": {"job_id": OTHER}},
}


class Client:
    def __init__(self, api: RunningGateway, root: Root, token: str) -> None:
        self._api = api
        self._how: dict[str, Any] = {
            "ssl": client_context(root),
            "headers": {"Authorization": f"Bearer {token}"},
        }

    async def ask(
        self, method: str, path: str, *, more_headers: dict[str, str] | None = None, **how: Any
    ) -> tuple[int, Any]:
        headers = self._how["headers"] | (more_headers or {})
        return await self._api.ask(method, path, **(self._how | {"headers": headers}), **how)

    async def status(self, method: str, path: str, body: bytes) -> int:
        async with self._api.session.request(method, path, data=body, **self._how) as response:
            return response.status

    def socket(self, path: str) -> Any:
        return self._api.session.ws_connect(path, **self._how)


@pytest.fixture
async def client(world: World, root: Root) -> AsyncIterator[Client]:
    control = world.cluster.control
    for name in (OWN, OTHER):
        await control.apply(name)
        await control.until(name, "Running")
    token = await a_token(control)
    address = f"127.0.0.1:{world.cluster.settings.grpc_port}"
    settings = quiet(insecure=False, scheduler_addr=(address,))
    async with a_gateway(settings, tls=root.tls(Role.GATEWAY, "g1")) as api:
        yield Client(api, root, token)


def all_routes() -> list[tuple[str, Route]]:
    return [
        (prefix + route.path, route)
        for prefix, routes in ((API, ROUTES), ("", CONTRACT_ROUTES))
        for route in routes
    ]


async def test_no_route_gives_access_to_others(client: Client) -> None:
    for path, route in all_routes():
        scope = METHODS[route.rpc].scope
        assert scope is not None
        if (scope.allowed and not scope.ids) or route.form is Form.SOCKET:
            continue
        filled = "/".join(OTHER if part.startswith("{") else part for part in path.split("/"))
        body = json.dumps(BODIES.get(route.path, {})).encode() if route.body else b""
        status = await client.status(route.method, filled, body)
        assert status == HTTPStatus.FORBIDDEN, f"{route.method} {path}: {status}"


async def test_a_session_in_a_workload_of_others_is_refused(client: Client) -> None:
    refused = False
    try:
        async with client.socket(f"{API}/workloads/{OTHER}/exec?command=sh") as socket:
            message = await socket.receive(timeout=20)
            refused = message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.TEXT)
            assert "home--" in str(message.extra or message.data)
    except aiohttp.WSServerHandshakeError as err:
        refused = err.status == HTTPStatus.FORBIDDEN
    assert refused


async def test_lists_and_pages_have_only_its_own_items(client: Client) -> None:
    beyond = base64.urlsafe_b64encode(b'["a"]').decode().rstrip("=")  # "web" would follow
    for query in ("", "?limit=1", "?limit=1000", f"?cursor={beyond}"):
        status, found = await client.ask("GET", f"{API}/workloads{query}")
        assert status == HTTPStatus.OK
        assert [one["workload_id"] for one in found["workloads"]] == [OWN], query
        assert not found.get("next_cursor"), query
    for query in ("", "?limit=1000", f"?workload_id={OTHER}", "?node_id=n1"):
        _, found = await client.ask("GET", f"{API}/events{query}")
        assert {one["workload_id"] for one in found.get("events", ())} <= {OWN}, query
    _, older = await client.ask("GET", "/workloads")
    assert [one["workload_id"] for one in older["workloads"]] == [OWN]


async def test_its_own_workload_can_be_changed(client: Client) -> None:
    status, _ = await client.ask("PUT", f"{API}/workloads/{OWN}", json=a_container("caddy"))
    assert status == HTTPStatus.OK
    body = a_container("caddy")
    body["spec"]["placement"] = {"offload": "prefer"}
    status, problem = await client.ask("PUT", f"{API}/workloads/{OWN}", json=body)
    assert (status, "spec.placement.offload" in str(problem)) == (422, True)


async def test_the_pages_of_the_gateway_itself_are_refused(client: Client) -> None:
    for path in ("/metrics", "/clusters", f"{API}/clusters", f"{API}/overview", f"{API}/audit"):
        assert await client.status("GET", path, b"") == HTTPStatus.FORBIDDEN, path


async def test_without_authentication_the_id_of_the_calling_cluster_is_forwarded(
    api: RunningGateway, cluster: Cluster
) -> None:
    contacts = cluster.app.home_contacts
    before = contacts.contacted_at("home")

    await api.get(f"{API}/mode")
    assert contacts.contacted_at("home") == before
    status, _ = await api.get(f"{API}/mode", headers={HOME: "home"})

    assert status == HTTPStatus.OK
    assert contacts.contacted_at("home") > before


async def test_the_id_that_an_authenticated_caller_claims_is_ignored(
    client: Client, world: World
) -> None:
    contacts = world.cluster.app.home_contacts
    before = contacts.contacted_at("east")

    status, _ = await client.ask("GET", f"{API}/mode", more_headers={HOME: "east"})

    assert status == HTTPStatus.OK
    assert contacts.contacted_at("east") == before
    assert contacts.contacted_at("home") > before
