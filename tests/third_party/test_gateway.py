"""Our gateway with a third-party scheduler, and the reverse: with mTLS, without user identities."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import BIN
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.model.identity import Role
from root_ca import Root
from third_party.pairings import OurScheduler
from third_party.programs import Agent, Program, files_of

Request = Callable[..., tuple[int, Any]]
CONTAINER = {"image": "nginx", "command": ["sleep", "3600"]}
SPEC = {"type": "container", "resources": {"memory_mb": "32"}, "container": CONTAINER}


def requester(address: str, tls: dict[str, str]) -> Request:
    """Sends requests like a command-line client with this certificate."""
    context = ssl.create_default_context(cafile=tls["ca"])
    context.load_cert_chain(tls["cert"], tls["key"])

    def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json"} if data else {}
        request = urllib.request.Request(
            f"https://{address}{path}", data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as err:
            return err.code, json.loads(err.read())

    return ask


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return Root(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def theirs(certificates: Root, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Request]:
    """A third-party gateway in front of our scheduler, which has a third-party agent."""
    folder = tmp_path_factory.mktemp("theirs")
    pairing = OurScheduler(folder, root=certificates)
    tls = files_of(certificates.write_named("persys-gateway"))
    gateway = Program("gateway", folder / "gateway", scheduler=pairing.address, tls=tls)
    try:
        pairing.start()
        gateway.start()
        yield requester(gateway.address, files_of(certificates.write_named("persysctl")))
    finally:
        gateway.close()
        pairing.close()


@pytest.fixture(scope="module")
def ours(certificates: Root, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Request]:
    """Our gateway in front of a third-party scheduler with a third-party agent."""
    folder = tmp_path_factory.mktemp("ours")
    tls = files_of(certificates.write_named("persys-scheduler"))
    scheduler = Program("scheduler", folder / "scheduler", tls=tls)
    tls = files_of(certificates.write_named("compute-agent"))
    # With such a scheduler, deleted workloads that are reported for ever would never be removed.
    agent = Agent(
        folder / "agent", "n1", scheduler.address, tls=tls, behaviour={"keeps_deleted": False}
    )
    gateway, port = _our_gateway(folder, certificates, scheduler.address)
    try:
        for process in (scheduler, agent, gateway):
            process.start()
        yield requester(f"127.0.0.1:{port}", files_of(certificates.write(Role.OPERATOR, "alice")))
    finally:
        for process in (scheduler, agent, gateway):
            process.close()


def _our_gateway(folder: Path, certificates: Root, scheduler: str) -> tuple[Process, int]:
    port = free_port()
    clusters = folder / "cluster.yaml"
    clusters.write_text(f"clusters:\n  - id: main\n    schedulers: [{{address: '{scheduler}'}}]\n")
    files = certificates.write(Role.GATEWAY, "g1", hosts=("127.0.0.1",))
    process = Process(
        [str(BIN / "persys-gateway")],
        {
            "PERSYS_GATEWAY_ADDR": "127.0.0.1",
            "PERSYS_GATEWAY_PORT": str(port),
            "PERSYS_GATEWAY_PUBLIC_ADDR": "127.0.0.1",
            "PERSYS_GATEWAY_PUBLIC_PORT": str(free_port()),
            "PERSYS_GATEWAY_CLUSTER_CONFIG": str(clusters),
            "PERSYS_GATEWAY_AUDIT_DB": str(folder / "audit.db"),
            "PERSYS_TLS_VERIFY": "host",
            **certificates.variables(files),
        },
        log=folder / "gateway.log",
        ready=lambda: listens_on(port),
    )
    return process, port


@pytest.fixture(params=["theirs", "ours"])
def ask(request: pytest.FixtureRequest) -> Request:
    gateway: Request = request.getfixturevalue(request.param)
    return gateway


def until_status(ask: Request, name: str, status: str) -> None:
    def has_status() -> bool:
        return bool(ask("GET", f"/workloads/{name}")[1].get("workload", {}).get("status") == status)

    eventually(has_status, lambda: f"{name} is {status}: {ask('GET', f'/workloads/{name}')}")


def test_a_workload_is_scheduled_stopped_started_and_deleted_through_the_gateway(
    ask: Request, unique_id: str
) -> None:
    code, answer = ask("POST", "/workloads/schedule", {"workload_id": unique_id, "spec": SPEC})
    assert (code, answer.get("success")) == (200, True), answer
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


def test_a_missing_workload_is_404_although_the_scheduler_sends_no_status_code(
    ours: Request,
) -> None:
    code, answer = ours("GET", "/workloads/absent")

    assert (code, "not found" in answer["error"]) == (404, True)


def test_a_gateway_that_treats_not_found_as_a_server_error_continues_to_work(
    theirs: Request,
) -> None:
    code, answer = theirs("GET", "/workloads/absent")
    assert (code, "not found" in answer["error"]) == (502, True)

    code, answer = theirs("DELETE", "/workloads/absent")
    assert (code, answer.get("success", False)) == (200, False)
    assert "not found" in answer["error_message"]
    assert theirs("GET", "/workloads")[0] == 200
