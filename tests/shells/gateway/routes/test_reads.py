"""Reads: paging, ETags, compression, shared and batched calls, rate limits."""

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import grpc
from yarl import URL

from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import (
    AgentControlServicer,
    add_AgentControlServicer_to_server,
)
from shells.gateway.running_gateway import RunningGateway, a_gateway, quiet
from shells.scheduler.harness import Cluster


async def pages_of(api: RunningGateway, path: str, field: str) -> list[list[dict[str, Any]]]:
    """All pages, following the links."""
    pages: list[list[dict[str, Any]]] = []
    next_path: str | None = path
    while next_path is not None:
        async with api.session.get(next_path) as response:
            assert response.status == 200
            pages.append((await response.json())[field])
            link = response.links.get("next")
            next_path = URL(link["url"]).raw_path_qs if link else None
    return pages


async def test_a_list_is_returned_in_pages(api: RunningGateway, cluster: Cluster) -> None:
    for number in range(5):
        await cluster.control.apply(f"w{number}")

    pages = await pages_of(api, "/api/v1/workloads?limit=2", "workloads")

    assert [[one["workload_id"] for one in page] for page in pages] == [
        ["w0", "w1"],
        ["w2", "w3"],
        ["w4"],
    ]


async def test_pages_of_events_start_with_the_newest(api: RunningGateway, cluster: Cluster) -> None:
    for number in range(5):
        await cluster.control.apply(f"w{number}")

    pages = await pages_of(api, "/api/v1/events?limit=3", "events")

    response = [[int(event["sequence"]) for event in page] for page in pages]
    assert all(page == sorted(page) for page in response)
    assert [page[0] for page in response] == sorted((page[0] for page in response), reverse=True)
    assert sorted(one for page in response for one in page) == list(range(1, response[0][-1] + 1))


async def test_an_invalid_page_is_refused(api: RunningGateway) -> None:
    for query in ("limit=0", "limit=x", "limit=1001", "cursor=%25", "cursor=WzFd&limit=1"):
        status, problem = await api.get(f"/api/v1/workloads?{query}")
        expected = (
            200 if query == "cursor=WzFd&limit=1" else 400
        )  # of another list, with nothing in it
        assert status == expected, query
        assert status == 200 or problem["field"] in ("limit", "cursor")


async def test_an_unchanged_response_is_304(api: RunningGateway, cluster: Cluster) -> None:
    await cluster.control.apply("web")
    async with api.session.get("/api/v1/workloads/web") as response:
        tag = response.headers["ETag"]
    known = {"If-None-Match": tag}

    async with api.session.get("/api/v1/workloads/web", headers=known) as response:
        assert (response.status, await response.read()) == (304, b"")
    await cluster.control.want("web", "Stopped")
    async with api.session.get("/api/v1/workloads/web", headers=known) as response:
        assert response.status == 200
        assert response.headers["ETag"] != tag


async def test_a_large_response_is_compressed(api: RunningGateway, cluster: Cluster) -> None:
    for number in range(20):
        await cluster.control.apply(f"w{number}")

    async with api.session.get("/api/v1/workloads") as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert len((await response.json())["workloads"]) == 20
    async with api.session.get(
        "/api/v1/workloads", headers={"Accept-Encoding": "identity"}
    ) as response:
        assert "Content-Encoding" not in response.headers


async def test_concurrent_reads_share_calls_and_never_see_older_data(
    api: RunningGateway, cluster: Cluster
) -> None:
    await cluster.control.apply("web")

    async def ask() -> str:
        _, response = await api.get("/api/v1/workloads/web")
        return str(response["workload"]["desired_state"])

    async with asyncio.TaskGroup() as group:
        requests = [group.create_task(ask()) for _ in range(50)]
    await cluster.control.want("web", "Stopped")

    assert {one.result() for one in requests} == {"Running"}
    assert await ask() == "Stopped"


async def ask_all(api: RunningGateway, names: Sequence[str]) -> dict[str, tuple[int, Any]]:
    async with asyncio.TaskGroup() as group:
        requested = {
            name: group.create_task(api.get(f"/api/v1/workloads/{name}")) for name in names
        }
    return {name: one.result() for name, one in requested.items()}


async def test_concurrent_reads_of_different_workloads_are_batched(
    api: RunningGateway, cluster: Cluster
) -> None:
    names = [f"w{number}" for number in range(90)]
    for name in names:
        await cluster.control.apply(name)
    alone = {name: await api.get(f"/api/v1/workloads/{name}") for name in (*names, "none")}

    together = await ask_all(api, [*names, "none"])

    assert {name: status for name, (status, _) in together.items()} == {
        name: status for name, (status, _) in alone.items()
    }
    for name in names:
        assert together[name][1]["workload"]["workload_id"] == name
        assert together[name][1]["workload"]["spec"] == alone[name][1]["workload"]["spec"]
    assert together["none"][1]["detail"] == alone["none"][1]["detail"]


async def test_batches_too_large_for_one_response_are_split(
    api: RunningGateway, cluster: Cluster
) -> None:
    names = [f"w{number}" for number in range(20)]
    for name in names:
        env = {f"LONG{number}": "x" * 100_000 for number in range(4)}
        container = pb.ContainerSpec(image="nginx", env=env)
        spec = pb.WorkloadSpec(type="container", container=container)
        await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))

    for name, (status, response) in (await ask_all(api, names)).items():
        assert (status, response["workload"]["workload_id"]) == (200, name)


class OlderScheduler(AgentControlServicer):
    """A scheduler with only the RPCs of the original protocol."""

    async def GetWorkload(  # noqa: N802
        self, request: pb.GetWorkloadRequest, context: object
    ) -> pb.GetWorkloadResponse:
        return pb.GetWorkloadResponse(workload=pb.WorkloadView(workload_id=request.workload_id))


async def test_a_scheduler_without_batch_reads_is_read_one_by_one() -> None:
    server = grpc.aio.server()
    add_AgentControlServicer_to_server(OlderScheduler(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    names = [f"w{number}" for number in range(30)]

    async with a_gateway(quiet(scheduler_addr=(f"127.0.0.1:{port}",))) as api:
        response = await ask_all(api, names)
    await server.stop(None)

    assert [response[name][1]["workload"]["workload_id"] for name in names] == names


async def test_too_many_requests_get_retry_after(cluster: Cluster) -> None:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    settings = quiet(scheduler_addr=(address,), requests_per_second=0.5, requests_burst=2)
    async with a_gateway(settings) as api:
        statuses = [(await api.get("/api/v1/mode"))[0] for _ in range(3)]
        async with api.session.get("/api/v1/mode") as response:
            assert int(response.headers["Retry-After"]) >= 1
        assert (await api.get("/health"))[0] == 200

    assert statuses == [200, 200, 429]


async def test_a_too_large_body_is_413(api: RunningGateway) -> None:
    body = io.BytesIO(b"x" * 5_000_000)

    status, problem = await api.ask("PUT", "/api/v1/workloads/web", data=body)

    assert (status, problem["status"]) == (413, 413)
