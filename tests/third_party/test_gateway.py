"""Our gateway with a third-party scheduler, and the reverse: with mTLS, without user identities."""

import pytest

from e2e.waiting import eventually
from third_party.gateway_pairings import GatewayPairing, after_a_gateway_kill
from third_party.gateway_user import Request

CONTAINER = {"image": "nginx", "command": ["sleep", "3600"]}
SPEC = {"type": "container", "resources": {"memory_mb": "32"}, "container": CONTAINER}
pytestmark = pytest.mark.parametrize("root", ["mtls"], indirect=True, scope="module")
theirs = pytest.mark.parametrize("gateway_pairing", ["theirs"], indirect=True, scope="module")
ours = pytest.mark.parametrize("gateway_pairing", ["ours"], indirect=True, scope="module")


@pytest.fixture
def ask(gateway_pairing: GatewayPairing) -> Request:
    return gateway_pairing.user.ask


def until_status(ask: Request, name: str, status: str) -> None:
    def has_status() -> bool:
        return bool(ask("GET", f"/workloads/{name}")[1].get("workload", {}).get("status") == status)

    eventually(has_status, lambda: f"{name} is {status}: {ask('GET', f'/workloads/{name}')}")


def test_a_workload_is_scheduled_stopped_started_and_deleted_through_the_gateway(
    ask: Request, unique_id: str
) -> None:
    code, response = ask("POST", "/workloads/schedule", {"workload_id": unique_id, "spec": SPEC})
    assert (code, response.get("success")) == (200, True), response
    until_status(ask, unique_id, "Running")
    for desired in ("Stopped", "Running"):
        body = {"workload_id": unique_id, "desired_state": desired}
        assert ask("POST", "/workloads/schedule", body)[0] == 200
        until_status(ask, unique_id, desired)
    assert ask("POST", f"/workloads/{unique_id}/retry")[0] == 200
    until_status(ask, unique_id, "Running")
    assert ask("DELETE", f"/workloads/{unique_id}")[0] == 200

    def is_gone() -> bool:
        listed = ask("GET", "/workloads")[1].get("workloads", [])
        return unique_id not in [one["workload_id"] for one in listed]

    eventually(is_gone, "it is gone")


def test_nodes_and_the_summary_are_read_through_the_gateway(ask: Request) -> None:
    nodes = ask("GET", "/nodes")[1]["nodes"]
    name = nodes[0]["node_id"]

    assert ask("GET", f"/nodes/{name}")[1]["node"]["node_id"] == name
    assert ask("GET", "/cluster/metrics")[1]["total_nodes"] == 1


@ours
def test_a_missing_workload_is_404_although_the_scheduler_sends_no_status_code(
    ask: Request,
) -> None:
    code, response = ask("GET", "/workloads/absent")

    assert (code, "not found" in response["error"]) == (404, True)


@theirs
def test_a_gateway_that_treats_not_found_as_a_server_error_continues_to_work(
    ask: Request,
) -> None:
    code, response = ask("GET", "/workloads/absent")
    assert (code, "not found" in response["error"]) == (502, True)

    code, response = ask("DELETE", "/workloads/absent")
    assert (code, response.get("success", False)) == (200, False)
    assert "not found" in response["error_message"]
    assert ask("GET", "/workloads")[0] == 200


def test_kill_9_of_the_gateway_before_its_answer_loses_nothing(
    gateway_pairing: GatewayPairing, unique_id: str
) -> None:
    after_a_gateway_kill(gateway_pairing, "apply", unique_id, "request")
