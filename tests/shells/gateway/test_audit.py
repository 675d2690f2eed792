"""Every change over HTTP creates an event with the client's identity and address, and an audit entry."""

from contextlib import AbstractAsyncContextManager

import pytest

from persys.model.identity import Role
from root_ca import Root
from shells.gateway.rest_calls import REST, send
from shells.gateway.running_gateway import RunningGateway, a_gateway, client_context
from shells.gateway.running_gateway import quiet as quiet_gateway
from shells.scheduler.calls import CALLS, World, a_lost_store

RECOVERIES = [where for where, route in REST.items() if CALLS[route.rpc].before is a_lost_store]


async def test_every_change_names_its_client_in_the_event_and_in_the_audit(
    world: World, root: Root
) -> None:
    async with a_running_gateway(world, root) as api:
        for number, where in enumerate(where for where in REST if where not in RECOVERIES):
            await named(world, api, root, where, f"x{number}")


@pytest.mark.parametrize("where", RECOVERIES)
async def test_every_recovery_names_its_client(world: World, root: Root, where: str) -> None:
    async with a_running_gateway(world, root) as api:
        await named(world, api, root, where, "x")


def a_running_gateway(world: World, root: Root) -> AbstractAsyncContextManager[RunningGateway]:
    address = f"127.0.0.1:{world.cluster.settings.grpc_port}"
    settings = quiet_gateway(insecure=False, scheduler_addr=(address,))
    return a_gateway(settings, tls=root.tls(Role.GATEWAY, "g1"))


async def named(world: World, api: RunningGateway, root: Root, where: str, own: str) -> None:
    call = CALLS[REST[where].rpc]
    await call.before(world, own)
    known = {event for _, event in world.app.cluster.events}
    status = await send(api, client_context(root, root.write(Role.ADMIN, "bob")), where, own)
    assert status in (200, 101), where

    response = [
        event
        for _, event in world.app.cluster.events
        if event.kind == call.event and event not in known
    ]
    assert [event.identity for event in response] == [
        "admin/bob via gateway/g1"
    ] * call.event_count, where
    assert [event.source for event in response] == ["127.0.0.1"] * call.event_count, where
    (newest,) = await api.gateway._audit.lines(limit=1, before=0)
    assert (newest.entry.action, newest.entry.who) == (REST[where].rpc, "admin/bob"), where
    assert newest.entry.address == "127.0.0.1"
