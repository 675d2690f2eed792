"""A disconnecting client, or a stopping gateway, leaves no partial change.

Every request that changes something is cancelled at each point where its handler waits. The change is then
complete, with its line in the audit and its answer under the Idempotency-Key, or it never happened.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from cancellation import Moment, at_every_wait
from cancelled_requests import RequestCanceller
from persys.model.identity import Role
from persys.wire.methods import METHODS, Audit, Form
from root_ca import Root
from shells.gateway.rest_calls import REST, UNARY, send
from shells.gateway.running_gateway import RunningGateway, a_gateway, client_context
from shells.gateway.running_gateway import quiet as quiet_gateway
from shells.gateway.webhooks.test_github import a_push, a_stack, deliver, hooked_settings
from shells.scheduler.calls import CALLS, World
from shells.scheduler.cancelled_call import CallCancellation
from shells.scheduler.harness import Cluster, eventually

RequestContext = Callable[[str, str], Awaitable[int]]
STREAMED = [where for where, route in REST.items() if route.form is not Form.UNARY]


@pytest.fixture
def cancelling() -> RequestCanceller:
    return RequestCanceller()


@pytest.fixture
async def api(
    root: Root, world: World, cancelling: RequestCanceller
) -> AsyncIterator[RunningGateway]:
    address = f"127.0.0.1:{world.cluster.settings.grpc_port}"
    settings = quiet_gateway(insecure=False, scheduler_addr=(address,))
    around, tls = cancelling.middleware(), root.tls(Role.GATEWAY, "g1")
    async with a_gateway(settings, tls=tls, around=around) as running:
        yield running


@pytest.fixture
def ask(root: Root, api: RunningGateway) -> RequestContext:
    """Send a call as an admin. Returns the status; 0 without a response."""
    admin = client_context(root, root.write(Role.ADMIN, "ann"))

    async def asking(where: str, own: str) -> int:
        try:
            return await send(api, admin, where, own)
        except aiohttp.ClientError:
            return 0

    return asking


async def audit_lines(api: RunningGateway) -> list[int]:
    """The status of each response."""
    lines = await api.gateway._audit.lines(limit=1000, before=0)
    return [line.entry.status for line in lines]


async def finished(api: RunningGateway) -> None:
    await api.gateway._owned.drained()


@pytest.mark.parametrize("where", UNARY)
async def test_a_change_is_complete_with_its_audit_or_never_happened(
    where: str, world: World, api: RunningGateway, ask: RequestContext, cancelling: RequestCanceller
) -> None:
    name = REST[where].rpc

    async def complete(own: str) -> None:
        assert await ask(where, own) == 200
        await finished(api)

    async def cancelled(moment: Moment, own: str) -> bool:
        reached = await cancelling.cancelled(moment, ask(where, own))
        await finished(api)
        return reached

    async def beside() -> dict[str, object]:
        return {"audit": (await audit_lines(api)).count(200)}

    example_path = CallCancellation(world, name, complete, cancelled=cancelled, beside=beside)
    full = await example_path.complete()

    assert "audit" in full
    assert await at_every_wait(lambda moment: example_path.cancelled(moment, full))


# A repeated read is audited again: only a change is done once.
@pytest.mark.parametrize(
    "where", [where for where in UNARY if "/api/v1/" in where and METHODS[REST[where].rpc].mutating]
)
async def test_a_retry_with_the_same_key_after_a_broken_connection_is_done_once(
    where: str, world: World, api: RunningGateway, ask: RequestContext, cancelling: RequestCanceller
) -> None:
    call = CALLS[REST[where].rpc]

    async def attempt(moment: Moment) -> bool:
        own = f"y{moment.number}{'b' if moment.late else 'a'}"
        await call.before(world, own)
        before = count_events(world, call.event)
        reached = await cancelling.cancelled(moment, ask(where, own))
        assert await ask(where, own) == 200, moment
        assert count_events(world, call.event) - before <= call.event_count, moment
        return reached

    assert await at_every_wait(attempt)


def count_events(world: World, kind: str) -> int:
    return sum(event.kind == kind for _, event in world.app.cluster.events)


@pytest.mark.parametrize("where", STREAMED)
async def test_a_cut_upload_is_complete_or_never_happened_and_is_audited(
    where: str, world: World, api: RunningGateway, ask: RequestContext, cancelling: RequestCanceller
) -> None:
    name = REST[where].rpc

    async def complete(own: str) -> None:
        await ask(where, own)

    async def cancelled(moment: Moment, own: str) -> bool:
        lines = len(await audit_lines(api))
        reached = await cancelling.cancelled(moment, ask(where, own))
        await finished(api)
        if reached:
            assert len(await audit_lines(api)) > lines, moment
        return reached

    example_path = CallCancellation(world, name, complete, cancelled=cancelled)
    full = await example_path.complete()

    assert await at_every_wait(lambda moment: example_path.cancelled(moment, full))
    assert full or METHODS[name].audit is Audit.START


async def test_an_accepted_delivery_is_processed_after_its_sender_disconnects(
    cluster: Cluster, cancelling: RequestCanceller
) -> None:
    await cluster.join()
    await a_stack(cluster, "shop")
    async with a_gateway(hooked_settings(cluster), around=cancelling.middleware()) as api:

        async def attempt(moment: Moment) -> bool:
            delivery = f"d{moment.number}{'b' if moment.late else 'a'}"
            push = a_push(after=delivery)
            reached = await cancelling.cancelled(moment, deliver(api, push, delivery=delivery))
            await finished(api)
            if not await is_taken(api, delivery):
                status, _ = await deliver(api, push, delivery=delivery)
                assert status == 202, moment
            await until_followed(api, delivery)
            status, _ = await deliver(api, push, delivery=delivery)
            assert status == 409, moment
            return reached

        assert await at_every_wait(attempt)


async def is_taken(api: RunningGateway, delivery: str) -> bool:
    found: list[Any] = await api.gateway._database.run(
        lambda database: database.execute(
            "SELECT 1 FROM taken WHERE mark = ?", (delivery,)
        ).fetchall()
    )
    return bool(found)


async def until_followed(api: RunningGateway, delivery: str) -> None:
    async def followed() -> bool:
        _, response = await api.get("/api/v1/gitops")
        return any(
            one.get("last_delivery", {}).get("delivery") == delivery
            for one in response["workloads"]
        )

    await eventually(followed, lambda: f"{delivery} to be followed", within=10)
