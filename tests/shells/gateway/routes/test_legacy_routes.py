"""The routes of older clients return the protocol messages."""

from shells.gateway.running_gateway import RunningGateway, a_container, a_gateway, quiet
from shells.scheduler.harness import Cluster, free_ports


async def test_an_applied_workload_is_returned_by_all_read_routes(
    api: RunningGateway, cluster: Cluster
) -> None:
    await cluster.join("n1")

    applied = await api.ask(
        "POST", "/workloads/schedule", json={"workload_id": "web", **a_container()}
    )
    await cluster.control.until("web", "Running")
    _, seen = await api.get("/workloads/web")
    _, listed = await api.get("/workloads?status=Running&node_id=n1")

    assert applied[0] == 200
    assert applied[1]["success"] is True
    assert seen["workload"]["status"] == "Running"
    assert seen["workload"]["spec"]["resources"]["memory_mb"] == "64"
    assert [view["workload_id"] for view in listed["workloads"]] == ["web"]
    assert (await api.get("/list"))[1]["workloads"]
    assert (await api.get("/clusters/default/workloads/web"))[0] == 200


async def test_camel_case_input_is_accepted(api: RunningGateway, cluster: Cluster) -> None:
    await cluster.join("n1")
    body = {
        "workloadId": "web",
        "desiredState": "Running",
        "spec": {"type": "container", "resources": {"memoryMb": "64"}, "container": {"image": "i"}},
    }

    assert (await api.ask("POST", "/workloads/schedule", json=body))[1]["success"] is True


async def test_a_refused_apply_returns_the_response_message(api: RunningGateway) -> None:
    status, response = await api.ask(
        "POST", "/workloads/schedule", json={"workload_id": "web", "spec": {"type": "container"}}
    )

    assert status == 200
    assert "success" not in response
    assert response["failure_reason"] == "INVALID_SPEC"
    assert response["error_message"]


async def test_an_unknown_object_is_404(api: RunningGateway) -> None:
    for method, path in (
        ("GET", "/workloads/none"),
        ("DELETE", "/workloads/none"),
        ("POST", "/workloads/none/retry"),
        ("GET", "/nodes/none"),
        ("GET", "/clusters/none"),
        ("GET", "/clusters/none/workloads"),
        ("GET", "/workloads?cluster_id=none"),
    ):
        status, response = await api.ask(method, path)
        assert (status, "error" in response) == (404, True), path


async def test_an_unknown_field_is_named(api: RunningGateway) -> None:
    status, response = await api.ask("POST", "/workloads/schedule", json={"spec": {"tipe": "vm"}})

    assert status == 400
    assert response["field"] == "spec.tipe"


async def test_nodes_and_summary_are_returned(api: RunningGateway, cluster: Cluster) -> None:
    await cluster.join("n1")

    assert (await api.get("/nodes?status=ready"))[1]["nodes"][0]["node_id"] == "n1"
    assert (await api.get("/nodes/n1"))[1]["node"]["status"] == "Ready"
    assert (await api.get("/cluster/metrics"))[1]["total_nodes"] == 1


async def test_clusters_are_returned_with_their_schedulers(api: RunningGateway) -> None:
    status, response = await api.get("/clusters")

    assert status == 200
    assert response["default_cluster_id"] == "default"
    (shown,) = response["clusters"]
    assert shown["total_schedulers"] == shown["healthy_schedulers"] == 1
    assert (await api.get("/clusters/default"))[1]["cluster"]["id"] == "default"
    assert (await api.get("/health"))[1] == {"status": "ok", "service": "persys-gateway"}


async def test_an_unreachable_scheduler_is_503() -> None:
    (port,) = free_ports(1)
    async with a_gateway(quiet(scheduler_addr=(f"127.0.0.1:{port}",))) as api:
        status, response = await api.get("/workloads")

    assert status == 503
    assert "default" in response["error"]
