"""GET /api/v1/usage: the usage of the last 24 hours, sampled by the gateway."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from persys.gateway.usage import NODE, WORKLOAD, UsageRing, samples_of
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.gateway.running_gateway import RunningGateway, a_gateway, quiet
from shells.scheduler.harness import Cluster


def test_samples_are_of_nodes_and_workloads_that_report_usage() -> None:
    node = pb.NodeView(
        node_id="n1",
        total_cpu_cores=4,
        available_cpu_cores=3,
        total_memory_mb=1000,
        available_memory_mb=900,
        usage=pb.NodeUsage(cpu_used_millicores=250, memory_used_mb=50, disk_used_gb=7),
    )
    used = pb.WorkloadView(
        workload_id="web", usage=pb.WorkloadUsageSnapshot(cpu_percent=12.5, memory_bytes=1024)
    )

    found = samples_of([node, pb.NodeView(node_id="n2")], [used, pb.WorkloadView(workload_id="x")])

    assert found == {(NODE, "n1"): (250, 1000, 50, 100, 7), (WORKLOAD, "web"): (12.5, 1024)}


def test_a_series_that_ended_makes_room_for_another() -> None:
    ring = UsageRing(keep=2, series_max=1)
    ring.add(1.0, {(NODE, "a"): (1.0,)})
    ring.add(2.0, {})
    ring.add(3.0, {(NODE, "b"): (2.0,)})

    assert ring.read((NODE, "a")) == []
    assert [sample.at for sample in ring.read((NODE, "b"))] == [3.0]


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[RunningGateway]:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    settings = quiet(scheduler_addr=(address,), usage_interval=timedelta(seconds=1))
    async with a_gateway(settings) as api:
        yield api


async def test_an_unknown_node_has_an_empty_history(api: RunningGateway) -> None:
    status, found = await api.get("/api/v1/usage?node_id=%3Cb%3E")

    assert status == 200
    assert (found["interval_seconds"], found["times"]) == (1.0, [])
    assert [one["name"] for one in found["series"]][:2] == [
        "cpu_used_millicores",
        "cpu_reserved_millicores",
    ]
    assert all(one["values"] == [] for one in found["series"])


@pytest.mark.parametrize("query", ["", "?node_id=", "?node_id=a&workload_id=b"])
async def test_the_request_names_one_node_or_one_workload(api: RunningGateway, query: str) -> None:
    status, problem = await api.get(f"/api/v1/usage{query}")

    assert (status, problem["field"]) == (400, "node_id")


async def test_an_unknown_cluster_is_not_found(api: RunningGateway) -> None:
    assert (await api.get("/api/v1/clusters/other/usage?node_id=a"))[0] == 404
