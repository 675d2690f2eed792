"""Routes under /api/v1: 200 means success, everything else is a problem."""

import asyncio

import pytest

from shells.gateway.running_gateway import RunningGateway, a_container
from shells.scheduler.harness import Cluster
from shells.scheduler.services.calls_of_services import ServiceCalls, a_service


async def test_a_workload_is_applied_read_and_deleted(
    api: RunningGateway, cluster: Cluster
) -> None:
    await cluster.join("n1")

    assert (await api.ask("PUT", "/api/v1/workloads/web", json=a_container()))[0] == 200
    await cluster.control.until("web", "Running")
    assert (await api.get("/api/v1/workloads/web"))[1]["workload"]["workload_id"] == "web"
    assert (await api.get("/api/v1/clusters/default/workloads/web/explain"))[0] == 200
    assert (await api.ask("DELETE", "/api/v1/workloads/web"))[0] == 200
    await cluster.control.until_gone("web")
    assert (await api.get("/api/v1/workloads/web"))[0] == 404


async def test_the_path_wins_over_the_body(api: RunningGateway, cluster: Cluster) -> None:
    await cluster.join("n1")

    await api.ask("PUT", "/api/v1/workloads/web", json=a_container(workload_id="other"))

    assert await cluster.control.names() == ["web"]


async def test_a_refusal_is_a_problem_with_the_response_message(api: RunningGateway) -> None:
    status, problem = await api.ask(
        "PUT", "/api/v1/workloads/web", json={"spec": {"type": "container"}}
    )

    assert status == problem["status"] == 422
    assert problem["title"] == "Unprocessable Entity"
    assert problem["reason"] == problem["answer"]["failure_reason"] == "INVALID_SPEC"
    assert problem["detail"] == problem["answer"]["error_message"]
    assert problem["request_id"]


async def test_an_unknown_object_is_404(api: RunningGateway) -> None:
    for method, path in (
        ("GET", "workloads/none"),
        ("DELETE", "workloads/none"),
        ("POST", "workloads/none/retry"),
        ("POST", "nodes/none/cordon"),
        ("GET", "workloads/none/logs"),
        ("GET", "clusters/none/workloads"),
    ):
        status, problem = await api.ask(method, f"/api/v1/{path}")
        assert (status, problem["status"]) == (404, 404), path


async def test_an_unknown_query_parameter_is_named(api: RunningGateway) -> None:
    status, problem = await api.get("/api/v1/workloads?nod_id=n1")

    assert (status, problem["field"]) == (400, "nod_id")


async def test_mode_and_identity_are_returned(api: RunningGateway) -> None:
    assert (await api.get("/api/v1/mode"))[1]["mode"] == "normal"
    assert (await api.get("/api/v1/identity"))[0] == 200


async def test_the_request_id_of_a_client_is_used(api: RunningGateway) -> None:
    async with api.session.get("/api/v1/mode", headers={"X-Request-ID": "abc"}) as response:
        assert response.headers["X-Request-ID"] == "abc"
    async with api.session.get("/api/v1/mode") as response:
        assert len(response.headers["X-Request-ID"]) == 32


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("workloads/%FF", b""),
        ("workloads/%00", b""),
        ("workloads/x?cluster_id=%FF", b""),
        ("workloads/x", b"X-Persys-Cluster-ID: \xff"),
        ("workloads/x", b"X-Persys-Session: \xff"),
        ("workloads/x", b"X-Request-ID: \xff"),
        ("workloads/x", b"traceparent: \xff"),
        ("workloads/x", b"If-Match: \xff"),
        ("workloads/x", b"Idempotency-Key: \xff"),
    ],
)
async def test_invalid_utf8_gets_a_normal_response(
    api: RunningGateway, path: str, header: bytes
) -> None:
    for method in (b"GET", b"DELETE"):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.gateway.port)
        head = b"%s /api/v1/%s HTTP/1.1\r\nHost: x\r\n" % (method, path.encode())
        writer.write(head + (header + b"\r\n" if header else b"") + b"\r\n")
        async with asyncio.timeout(10):
            response = await reader.readline()
        writer.close()
        assert response.split()[1] in (b"400", b"404", b"409", b"412"), response


async def test_unknown_paths_and_methods_are_problems(api: RunningGateway) -> None:
    assert (await api.get("/api/v1/wrokloads"))[1]["status"] == 404
    async with api.session.post("/api/v1/nodes") as response:
        assert (response.status, (await response.json(content_type=None))["status"]) == (405, 405)
        assert "GET" in response.headers["Allow"].split(", ")


async def test_a_cross_site_change_is_refused(api: RunningGateway) -> None:
    status, _ = await api.ask(
        "DELETE", "/api/v1/workloads/web", headers={"Origin": "https://elsewhere.example"}
    )

    assert status == 403


async def test_the_endpoints_of_services_are_served_for_traefik(
    api: RunningGateway, cluster: Cluster
) -> None:
    services = ServiceCalls(cluster)
    node = await cluster.join("n1")
    spec = a_service()
    spec.hosts.append("shop.example.org")
    await services.applied(spec)
    assert (await api.get("/api/v1/traefik")) == (200, {})

    await services.run("web-a", 8080)
    await services.until_listed("web-a")
    status, found = await api.get("/api/v1/traefik")

    host = node.agent.endpoint.rpartition(":")[0]
    servers = {"servers": [{"url": f"http://{host}:8080"}]}
    assert (status, found["http"]["services"]) == (200, {"web": {"loadBalancer": servers}})
    assert found["http"]["routers"]["web"]["rule"] == "Host(`shop.example.org`)"
