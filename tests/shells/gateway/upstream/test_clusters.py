"""Several clusters behind one gateway: requests reach their cluster, and failures stay isolated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from persys.errors import SettingsError
from persys.gateway.upstream.cluster import Cluster as Behind
from persys.gateway.upstream.config import ClusterEntry, read_clusters
from persys.infra.clock import SystemClock
from persys.infra.rpc.grpc_server import new_channel
from persys.store.memory import MemoryStore
from shells.gateway.running_gateway import RunningGateway, a_container, a_gateway, quiet
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings, free_ports
from shells.scheduler.stores import FaultyStore


@pytest.fixture
async def other() -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        yield cluster
    await store.store.close()


@pytest.fixture
async def api_of_clusters(
    cluster: Cluster, other: Cluster, tmp_path: Path
) -> AsyncIterator[RunningGateway]:
    """Of the first cluster's two schedulers one is down; the third cluster is down."""
    gone, lost = free_ports(2)

    def at(port: int) -> dict[str, str]:
        return {"id": f"s{port}", "address": f"127.0.0.1:{port}"}

    content = {
        "default_cluster_id": "one",
        "clusters": [
            {
                "id": "one",
                "name": "First",
                "routing_strategy": "sticky",
                "schedulers": [at(gone), at(cluster.settings.grpc_port)],
            },
            {"id": "two", "schedulers": [at(other.settings.grpc_port)]},
            {"id": "lost", "routing_strategy": "shard", "schedulers": [at(lost)]},
        ],
    }
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(content))
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(a_gateway(quiet(cluster_config=str(path))))


async def test_a_cluster_is_chosen_by_path_header_query_or_default(
    api_of_clusters: RunningGateway, cluster: Cluster, other: Cluster
) -> None:
    await api_of_clusters.ask("PUT", "/api/v1/workloads/a", json=a_container())
    await api_of_clusters.ask("PUT", "/api/v1/clusters/two/workloads/b", json=a_container())
    header = {"X-Persys-Cluster-ID": "two"}
    await api_of_clusters.ask("PUT", "/api/v1/workloads/c", json=a_container(), headers=header)
    await api_of_clusters.ask("PUT", "/api/v1/workloads/d?cluster_id=two", json=a_container())

    assert await cluster.control.names() == ["a"]
    assert await other.control.names() == ["b", "c", "d"]
    _, listed = await api_of_clusters.get("/clusters/two/workloads")
    assert len(listed["workloads"]) == 3


@pytest.mark.parametrize("session", [str(number) for number in range(6)])
async def test_an_unreachable_scheduler_is_skipped(
    api_of_clusters: RunningGateway, session: str
) -> None:
    headers = {"X-Persys-Session": session}
    for method, path in (("GET", "/api/v1/mode"), ("POST", "/api/v1/workloads/none/retry")):
        status, _ = await api_of_clusters.ask(method, path, headers=headers)
        assert status in (200, 404)


async def test_an_unreachable_cluster_does_not_affect_others(
    api_of_clusters: RunningGateway,
) -> None:
    assert (await api_of_clusters.get("/api/v1/clusters/lost/workloads"))[0] == 503
    assert (await api_of_clusters.get("/api/v1/clusters/two/workloads"))[0] == 200


async def test_schedulers_are_shown_with_health_and_role(api_of_clusters: RunningGateway) -> None:
    async def seen() -> bool:
        _, response = await api_of_clusters.get("/clusters")
        healthy = {one["id"]: one["healthy_schedulers"] for one in response["clusters"]}
        return healthy == {"one": 1, "two": 1, "lost": 0}

    await eventually(seen, lambda: "the schedulers to be judged")
    _, response = await api_of_clusters.get("/clusters/two")
    (scheduler,) = response["cluster"]["schedulers"]

    async def leads() -> bool:
        _, response = await api_of_clusters.get("/clusters/two")
        return bool(response["cluster"]["schedulers"][0]["is_leader"])

    await eventually(leads, lambda: "the leader to be known")
    assert scheduler["last_seen"]


async def test_a_refusal_keeps_a_scheduler_healthy(api_of_clusters: RunningGateway) -> None:
    for _ in range(3):
        await api_of_clusters.get("/api/v1/clusters/two/workloads/none")
    _, response = await api_of_clusters.get("/clusters/two")

    assert response["cluster"]["healthy_schedulers"] == 1


async def test_a_returning_scheduler_is_used_again(
    api_of_clusters: RunningGateway, other: Cluster
) -> None:
    await other.stop()
    assert (await api_of_clusters.get("/api/v1/clusters/two/mode"))[0] == 503
    await other.start()

    async def answers() -> bool:
        return (await api_of_clusters.get("/api/v1/clusters/two/mode"))[0] == 200

    await eventually(answers, lambda: "the scheduler to be asked again")


async def test_the_overview_has_all_clusters(
    api_of_clusters: RunningGateway, other: Cluster
) -> None:
    await other.join("n1", cpu=4000, memory=8192)
    await other.control.apply("web", cpu=500, memory=1024)
    await other.control.until("web", "Running")

    _, response = await api_of_clusters.get("/api/v1/overview")

    one, two, lost = response["clusters"]
    assert one["name"] == "First"
    assert two["summary"]["running_workloads"] == 1
    assert two["mode"]["mode"] == "normal"
    assert two["capacity"]["cpu_millicores"]["total"] == 4000
    assert two["capacity"]["memory_mb"]["reserved"] == 1024
    assert lost["problem"]["status"] == 503


async def test_schedulers_follow_the_srv_record(cluster: Cluster) -> None:
    response = [f"127.0.0.1:{cluster.settings.grpc_port}"]
    entry = ClusterEntry("found", discovery="_persys._tcp.test")
    found = Behind(entry, new_channel, SystemClock(), lambda name: response)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(found.run())

        async def known() -> bool:
            return [one.address for one in found.upstreams if one.is_leader] == response

        await eventually(known, lambda: "the scheduler to be found")
        running.cancel()
    await found.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("clusters: []", "at least one"),
        (
            "clusters: [{id: a, schedulers: [{address: 'h:1'}]}]\ndefault_cluster_id: b",
            "no cluster b",
        ),
        ("clusters: [{id: a}]", "either schedulers or discovery"),
        ("clusters: [{id: a, discovery: name}]", "SRV"),
        ("clusters: [{id: a, schedulers: [{address: h}]}]", "host:port"),
        ("clusters: [{id: a, shedulers: []}]", "shedulers"),
        ("clusters: [{id: a, discovery: _a._b, routing_strategy: any}]", "any"),
        ("{", "cluster.yaml"),
    ],
)
def test_an_invalid_cluster_file_is_refused_with_the_reason(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)

    with pytest.raises(SettingsError, match=problem):
        read_clusters(path)


async def test_an_idempotency_key_counts_per_cluster(
    api_of_clusters: RunningGateway, cluster: Cluster, other: Cluster
) -> None:
    key = {"Idempotency-Key": "k1"}
    for headers in (key, {**key, "X-Persys-Cluster-ID": "two"}):
        status, _ = await api_of_clusters.ask(
            "PUT", "/api/v1/workloads/a", json=a_container(), headers=headers
        )
        assert status == 200

    assert await cluster.control.names() == ["a"]
    assert await other.control.names() == ["a"]
