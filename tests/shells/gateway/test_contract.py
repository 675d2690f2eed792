"""The routes of older clients return the protocol messages."""

from shells.gateway.town import House, a_container, a_gateway, quiet
from shells.scheduler.harness import Cluster, free_ports


async def test_an_applied_workload_is_returned_by_all_read_routes(
    house: House, cluster: Cluster
) -> None:
    await cluster.join("n1")

    applied = await house.ask(
        "POST", "/workloads/schedule", json={"workload_id": "web", **a_container()}
    )
    await cluster.control.until("web", "Running")
    _, seen = await house.get("/workloads/web")
    _, listed = await house.get("/workloads?status=Running&node_id=n1")

    assert applied[0] == 200
    assert applied[1]["success"] is True
    assert seen["workload"]["status"] == "Running"
    assert seen["workload"]["spec"]["resources"]["memory_mb"] == "64"
    assert [view["workload_id"] for view in listed["workloads"]] == ["web"]
    assert (await house.get("/list"))[1]["workloads"]
    assert (await house.get("/clusters/default/workloads/web"))[0] == 200


async def test_camel_case_input_is_accepted(house: House, cluster: Cluster) -> None:
    await cluster.join("n1")
    body = {
        "workloadId": "web",
        "desiredState": "Running",
        "spec": {"type": "container", "resources": {"memoryMb": "64"}, "container": {"image": "i"}},
    }

    assert (await house.ask("POST", "/workloads/schedule", json=body))[1]["success"] is True


async def test_a_refused_apply_returns_the_response_message(house: House) -> None:
    status, answer = await house.ask(
        "POST", "/workloads/schedule", json={"workload_id": "web", "spec": {"type": "container"}}
    )

    assert status == 200
    assert "success" not in answer
    assert answer["failure_reason"] == "INVALID_SPEC"
    assert answer["error_message"]


async def test_an_unknown_object_is_404(house: House) -> None:
    for method, path in (
        ("GET", "/workloads/none"),
        ("DELETE", "/workloads/none"),
        ("POST", "/workloads/none/retry"),
        ("GET", "/nodes/none"),
        ("GET", "/clusters/none"),
        ("GET", "/clusters/none/workloads"),
        ("GET", "/workloads?cluster_id=none"),
    ):
        status, answer = await house.ask(method, path)
        assert (status, "error" in answer) == (404, True), path


async def test_an_unknown_field_is_named(house: House) -> None:
    status, answer = await house.ask("POST", "/workloads/schedule", json={"spec": {"tipe": "vm"}})

    assert status == 400
    assert answer["field"] == "spec.tipe"


async def test_nodes_and_summary_are_returned(house: House, cluster: Cluster) -> None:
    await cluster.join("n1")

    assert (await house.get("/nodes?status=ready"))[1]["nodes"][0]["node_id"] == "n1"
    assert (await house.get("/nodes/n1"))[1]["node"]["status"] == "Ready"
    assert (await house.get("/cluster/metrics"))[1]["total_nodes"] == 1


async def test_clusters_are_returned_with_their_schedulers(house: House) -> None:
    status, answer = await house.get("/clusters")

    assert status == 200
    assert answer["default_cluster_id"] == "default"
    (shown,) = answer["clusters"]
    assert shown["total_schedulers"] == shown["healthy_schedulers"] == 1
    assert (await house.get("/clusters/default"))[1]["cluster"]["id"] == "default"
    assert (await house.get("/health"))[1] == {"status": "ok", "service": "persys-gateway"}


async def test_an_unreachable_scheduler_is_503() -> None:
    (port,) = free_ports(1)
    async with a_gateway(quiet(scheduler_addr=(f"127.0.0.1:{port}",))) as house:
        status, answer = await house.get("/workloads")

    assert status == 503
    assert "default" in answer["error"]
