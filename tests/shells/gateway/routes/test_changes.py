"""Changes: If-Match, Idempotency-Key and the audit log."""

import asyncio
from pathlib import Path
from typing import Any

from shells.gateway.running_gateway import RunningGateway, a_container, a_gateway, quiet
from shells.scheduler.harness import Cluster

WEB = "/api/v1/workloads/web"


async def etag_of(api: RunningGateway) -> str:
    async with api.session.get(WEB) as response:
        return response.headers["ETag"]


async def put(api: RunningGateway, image: str = "nginx", **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return await api.ask("PUT", WEB, json=a_container(image), headers=named)


async def test_a_change_with_a_stale_etag_is_refused(api: RunningGateway) -> None:
    await put(api)
    tag = await etag_of(api)

    assert (await put(api, "nginx:2", If_Match=tag))[0] == 200
    assert (await put(api, "nginx:3", If_Match=tag))[0] == 412
    assert (await api.ask("DELETE", WEB, headers={"If-Match": tag}))[0] == 412
    assert (await api.ask("DELETE", WEB, headers={"If-Match": await etag_of(api)}))[0] == 200


async def test_if_match_accepts_a_revision(api: RunningGateway) -> None:
    _, applied = await put(api)

    assert (await put(api, "nginx:2", If_Match=f'"{applied["revision_id"]}"'))[0] == 200


async def test_if_none_match_protects_an_existing_workload(api: RunningGateway) -> None:
    assert (await put(api, If_Match="*"))[0] == 412
    assert (await put(api, If_None_Match="*"))[0] == 200
    assert (await put(api, "nginx:2", If_None_Match="*"))[0] == 412


async def test_of_two_changes_with_the_same_etag_one_succeeds(api: RunningGateway) -> None:
    await put(api)
    tag = await etag_of(api)

    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(put(api, f"i:{n}", If_Match=tag)) for n in range(5)]

    assert sorted(one.result()[0] for one in tries) == [200, 412, 412, 412, 412]


async def test_a_request_under_the_same_key_is_done_once(
    api: RunningGateway, cluster: Cluster
) -> None:
    first = await put(api, Idempotency_Key="k1")
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    async with api.session.put(
        WEB, json=a_container(), headers={"Idempotency-Key": "k1"}
    ) as response:
        assert response.headers["Idempotency-Replayed"] == "true"
        assert (response.status, await response.json()) == first

    assert await cluster.control.names() == []
    assert (await put(api, "nginx:2", Idempotency_Key="k1"))[0] == 422


async def test_every_change_is_audited(cluster: Cluster, tmp_path: Path) -> None:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    settings = quiet(scheduler_addr=(address,), audit_db=str(tmp_path / "a" / "audit.db"))
    async with a_gateway(settings) as api:
        await put(api, X_Request_ID="r1")
        await api.ask("DELETE", "/workloads/none")
        await api.get(WEB)
    async with a_gateway(settings) as api:
        _, first = await api.get("/api/v1/audit?limit=1")
        _, second = await api.get(f"/api/v1/audit?limit=5&cursor={first['next_cursor']}")

    (deleted,), (applied,) = first["entries"], second["entries"]
    assert (first["deeds"], deleted["deed"]) == ([deleted], deleted["action"])  # earlier names
    assert (deleted["action"], deleted["target"], deleted["status"]) == (
        "DeleteWorkload",
        "none",
        404,
    )
    assert (applied["action"], applied["target"], applied["status"]) == (
        "ApplyWorkload",
        "web",
        200,
    )
    assert (applied["who"], applied["cluster"]) == ("anyone", "default")
    assert applied["request_id"] == "r1"
    assert second["next_cursor"] == ""
    assert (tmp_path / "a" / "audit.db").stat().st_mode & 0o077 == 0


async def test_the_audit_log_is_bounded(cluster: Cluster) -> None:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    async with a_gateway(quiet(scheduler_addr=(address,), audit_keep=3)) as api:
        for number in range(6):
            await api.ask("DELETE", f"/workloads/w{number}")
        _, response = await api.get("/api/v1/audit")

    assert [action["target"] for action in response["entries"]] == ["w5", "w4", "w3"]
