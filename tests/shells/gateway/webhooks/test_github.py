"""GitHub webhooks: signed and recent deliveries are accepted once and redeploy stacks."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from persys.errors import SettingsError
from persys.gateway.settings import GatewaySettings
from persys.gateway.webhooks.github import read_hooks
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.gateway.running_gateway import RunningGateway, a_gateway, quiet
from shells.scheduler.harness import Cluster, eventually

SECRET = "s3cret"
REPOSITORY = "https://github.com/acme/shop.git"


@pytest.fixture
async def api_with_webhooks(cluster: Cluster) -> AsyncIterator[RunningGateway]:
    async with a_gateway(hooked_settings(cluster)) as api:
        yield api


def hooked_settings(cluster: Cluster, **more: Any) -> GatewaySettings:
    return quiet(
        scheduler_addr=(f"127.0.0.1:{cluster.settings.grpc_port}",),
        webhooks=({"repository": "acme/shop", "secret": SECRET},),
        **more,
    )


def a_push(**changes: Any) -> dict[str, Any]:
    repository = {
        "full_name": "acme/shop",
        "clone_url": REPOSITORY,
        "default_branch": "main",
        "pushed_at": round(SystemClock().now().timestamp()),
    }
    return {"ref": "refs/heads/main", "after": "c0ffee", "repository": repository, **changes}


async def deliver(
    api: RunningGateway,
    payload: Any,
    *,
    secret: str = SECRET,
    delivery: str = "",
    event: str = "push",
    **headers: str,
) -> tuple[int, Any]:
    body = json.dumps(payload).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    response = {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Delivery": delivery or uuid4().hex,
        "X-GitHub-Event": event,
        **headers,
    }
    url = f"http://127.0.0.1:{api.gateway.public_port}/webhooks/github"
    return await api.ask("POST", url, data=body, headers=response)


async def a_stack(cluster: Cluster, name: str, *, ref: str = "main", desired: str = "") -> str:
    """Returns the revision."""
    compose = pb.ComposeSpec(source_type="git", git_repo=REPOSITORY, git_ref=ref)
    spec = pb.WorkloadSpec(type="compose", compose=compose)
    response = await cluster.control.send(
        pb.ApplyWorkloadRequest(workload_id=name, spec=spec, desired_state=desired)
    )
    assert response.success, response
    return response.revision_id


async def until_redeployed(cluster: Cluster, name: str, revision: str) -> None:
    async def is_redeployed() -> bool:
        return (await cluster.control.workload(name)).revision_id == f"{revision}+2"

    await eventually(is_redeployed, lambda: f"{name} to be redeployed")


async def test_a_push_redeploys_the_stacks_of_its_branch(
    api_with_webhooks: RunningGateway, cluster: Cluster
) -> None:
    before = {name: await a_stack(cluster, name) for name in ("shop", "shop2")}
    other = await a_stack(cluster, "other", ref="next")
    stopped = await a_stack(cluster, "stopped", desired="Stopped")

    replied = await deliver(api_with_webhooks, a_push(), delivery="d1")

    assert replied == (202, {"status": "accepted"})
    for name, revision in before.items():
        await until_redeployed(cluster, name, revision)
    assert (await cluster.control.workload("other")).revision_id == other
    assert (await cluster.control.workload("stopped")).revision_id == stopped
    _, response = await api_with_webhooks.get("/api/v1/gitops")
    shown = {one["workload_id"]: one for one in response["workloads"]}
    assert shown.keys() == {"shop", "shop2", "other", "stopped"}
    assert (shown["shop"]["repository"], shown["shop"]["branch"]) == (
        "github.com/acme/shop",
        "main",
    )
    assert shown["shop"]["last_delivery"]["commit"] == "c0ffee"
    assert "last_delivery" not in shown["other"]
    _, audit = await api_with_webhooks.get("/api/v1/audit")
    assert {(action["who"], action["target"]) for action in audit["entries"]} == {
        ("operator/webhook", "shop"),
        ("operator/webhook", "shop2"),
    }


async def test_a_push_starts_a_rollout_of_the_sets_of_its_branch(
    api_with_webhooks: RunningGateway, cluster: Cluster
) -> None:
    compose = pb.ComposeSpec(source_type="git", git_repo=REPOSITORY, git_ref="main")
    template = pb.WorkloadSpec(type="compose", compose=compose)
    for name, desired in (("shop", ""), ("stopped", "Stopped")):
        spec = pb.SetSpec(set_id=name, replicas=2, template=template)
        request = pb.ApplySetRequest(set=spec, desired_state=desired)
        assert (await cluster.control.stub.ApplySet(request, timeout=10)).accepted

    await deliver(api_with_webhooks, a_push(), delivery="d1")

    sets = cluster.app.cluster.sets

    async def is_updated() -> bool:
        return sets["shop"].target == 2

    await eventually(is_updated, lambda: "the set to have a second revision")
    assert (sets["shop"].replicas, sets["stopped"].target) == (2, 1)
    shown: dict[str, Any] = {}

    async def is_shown() -> bool:
        _, response = await api_with_webhooks.get("/api/v1/gitops")
        shown.update({one["workload_id"]: one for one in response["workloads"]})
        return "last_delivery" in shown["shop"]

    await eventually(is_shown, lambda: f"the delivery to be shown: {shown}")
    assert shown.keys() == {"shop", "stopped"}
    assert shown["shop"]["last_delivery"]["status"] == 200


async def test_a_push_waits_for_an_unreachable_cluster(
    api_with_webhooks: RunningGateway, cluster: Cluster
) -> None:
    revision = await a_stack(cluster, "shop")
    await cluster.stop()

    assert (await deliver(api_with_webhooks, a_push()))[0] == 202
    await cluster.start()

    await until_redeployed(cluster, "shop", revision)


async def test_a_push_is_processed_after_a_restart_of_the_gateway(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = hooked_settings(cluster, audit_db=str(tmp_path / "audit.db"))
    revision = await a_stack(cluster, "shop")
    await cluster.stop()
    push = a_push()
    async with a_gateway(settings) as api:
        assert (await deliver(api, push, delivery="d1"))[0] == 202

    await cluster.start()
    async with a_gateway(settings) as api:
        await until_redeployed(cluster, "shop", revision)
        assert (await deliver(api, push, delivery="d2"))[0] == 409

        async def noted() -> bool:
            return await last_commit(api) == "c0ffee"

        await eventually(noted, lambda: "the gateway to have noted it")

    async with a_gateway(settings) as api:
        assert await last_commit(api) == "c0ffee"


async def test_only_the_newest_waiting_push_of_a_branch_is_processed(
    api_with_webhooks: RunningGateway, cluster: Cluster
) -> None:
    revision = await a_stack(cluster, "shop")
    await cluster.stop()

    for commit in ("aaa", "bbb", "ccc"):
        assert (await deliver(api_with_webhooks, a_push(after=commit)))[0] == 202
    await cluster.start()

    async def followed() -> bool:
        return await last_commit(api_with_webhooks) == "ccc"

    await eventually(followed, lambda: "the newest to be followed")
    # At most one was in progress when the next arrived.
    assert (await cluster.control.workload("shop")).revision_id in (
        f"{revision}+2",
        f"{revision}+3",
    )


async def last_commit(api: RunningGateway) -> str:
    """No outcome is known while the cluster is unreachable."""
    status, response = await api.get("/api/v1/gitops")
    if status != 200:
        return ""
    (shop,) = response["workloads"]
    return str(shop.get("last_delivery", {}).get("commit", ""))


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ({"secret": "wrong"}, 401),
        ({"X-Hub-Signature-256": ""}, 400),
        ({"X-Hub-Signature-256": "sha256=é"}, 401),
        ({"Date": "Tue, 01 Jan 2019 00:00:00 GMT"}, 409),
        ({"Date": "yesterday"}, 400),
    ],
)
async def test_an_unsigned_or_old_delivery_is_refused(
    api_with_webhooks: RunningGateway, how: dict[str, str], status: int
) -> None:
    assert (await deliver(api_with_webhooks, a_push(), **how))[0] == status


async def test_an_old_push_and_an_unknown_repository_are_refused(
    api_with_webhooks: RunningGateway,
) -> None:
    old = a_push()
    old["repository"]["pushed_at"] -= 100_000
    stranger = a_push()
    stranger["repository"]["clone_url"] = "https://github.com/acme/other.git"

    assert (await deliver(api_with_webhooks, old))[0] == 409
    unknown = await deliver(api_with_webhooks, stranger, secret="")
    wrong = await deliver(api_with_webhooks, a_push(), secret="wrong")
    assert (unknown[0], unknown[1]["error"]) == (401, wrong[1]["error"])


async def test_a_delivery_is_accepted_once_even_with_another_id(
    api_with_webhooks: RunningGateway,
) -> None:
    push = a_push()

    assert (await deliver(api_with_webhooks, push, delivery="d1"))[0] == 202
    assert (await deliver(api_with_webhooks, push, delivery="d1"))[0] == 409
    assert (await deliver(api_with_webhooks, push, delivery="d2"))[0] == 409


async def test_other_events_are_accepted_without_effect(api_with_webhooks: RunningGateway) -> None:
    assert (
        await deliver(api_with_webhooks, {"repository": {"full_name": "acme/shop"}}, event="ping")
    )[0] == 202


async def test_an_invalid_body_is_refused(api_with_webhooks: RunningGateway) -> None:
    assert (await deliver(api_with_webhooks, [1]))[0] == 400
    assert (await deliver(api_with_webhooks, {"repository": {"full_name": "acme/shop"}}))[0] == 400


async def test_the_public_port_serves_only_webhooks_and_health(
    api_with_webhooks: RunningGateway,
) -> None:
    base = f"http://127.0.0.1:{api_with_webhooks.gateway.public_port}"
    async with api_with_webhooks.session.get(f"{base}/health") as response:
        assert response.status == 200
    for path in ("/workloads", "/clusters", "/api/v1/workloads", "/api/v1/audit", "/ui/", "/"):
        async with api_with_webhooks.session.get(base + path) as response:
            assert response.status == 404, path
    async with api_with_webhooks.session.post(
        f"http://127.0.0.1:{api_with_webhooks.gateway.port}/webhooks/github"
    ) as no:
        assert no.status == 404


async def test_the_public_port_is_closed_without_webhooks(api: RunningGateway) -> None:
    assert api.gateway.public_port == 0


@pytest.mark.parametrize(
    "hook",
    [
        {"repository": "acme/shop"},
        {"repository": "acme/shop", "secret": ""},
        {"repository": "acme/shop", "secret": "a", "secret_file": "b"},
        {"repository": "acme/shop", "secret_file": "EMPTY"},
        {"repository": "acme/shop", "secret_file": "MISSING"},
        {"secret": "a"},
        {"repository": "acme/shop", "secret": "a", "sekret": "b"},
    ],
)
def test_a_webhook_without_a_secret_is_refused_at_start(
    hook: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "EMPTY").write_text("\n")
    if "secret_file" in hook:
        hook = {**hook, "secret_file": str(tmp_path / hook["secret_file"])}

    with pytest.raises(SettingsError, match="webhooks"):
        read_hooks([hook])


def test_a_webhook_secret_can_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")

    hooks = read_hooks([{"repository": REPOSITORY, "secret_file": str(tmp_path / "secret")}])

    assert hooks["github.com/acme/shop"].secret == b"s3cret"
    assert "s3cret" not in repr(hooks)


async def deliver_raw(api: RunningGateway, body: bytes, delivery: bytes) -> bytes:
    """A raw request: aiohttp's client does not send headers with arbitrary bytes."""
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest().encode()
    lines = (
        b"POST /webhooks/github HTTP/1.1",
        b"Host: x",
        b"Connection: close",
        b"Content-Length: %d" % len(body),
        b"X-Hub-Signature-256: sha256=" + signature,
        b"X-GitHub-Delivery: " + delivery,
        b"X-GitHub-Event: push",
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", api.gateway.public_port)
    writer.write(b"\r\n".join((*lines, b"", body)))
    async with asyncio.timeout(20):
        response = await reader.read()
    writer.close()
    return response.split(b" ")[1]


async def test_a_delivery_with_a_non_text_id_is_accepted_once(
    api_with_webhooks: RunningGateway,
) -> None:
    body = json.dumps(a_push()).encode()

    assert await deliver_raw(api_with_webhooks, body, b"\xff") == b"202"
    assert await deliver_raw(api_with_webhooks, body, b"\xff") == b"409"
