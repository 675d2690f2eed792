"""persysctl with an older gateway, which has only the routes of the contract."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from persys.client import Gateway, SchedulerClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shells.cli.conftest import Run

ANSWERS: dict[tuple[str, str], tuple[int, object]] = {
    ("GET", "/workloads?status=Running"): (200, {"workloads": [{"workloadId": "web"}]}),
    ("GET", "/workloads/web"): (200, {"workload": {"workload_id": "web", "status": "Running"}}),
    ("GET", "/workloads/nobody"): (404, {"error": "workload not found: nobody"}),
    ("GET", "/nodes"): (200, {"nodes": [{"node_id": "n1", "status": "Ready"}]}),
    ("GET", "/clusters/east/nodes"): (200, {"nodes": []}),
    ("POST", "/workloads/schedule"): (200, {"success": True, "revision_id": "r7"}),
    ("POST", "/workloads/web/retry"): (200, {"accepted": False, "reason": "it has not failed"}),
}


class OlderGateway(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    leaves = False
    bodies: list[bytes] = []  # noqa: RUF012 - one server at a time

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = ANSWERS.get((self.command, self.path))
        content = b"404 page not found" if found is None else json.dumps(found[1]).encode()
        if found is not None and body:
            self.bodies.append(body)
        self.send_response(404 if found is None else found[0])
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.leaves  # without a notice, as after a long idle time

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 - the library names them

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def older() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OlderGateway)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_routes_of_the_contract_work(run: Run, older: str) -> None:
    assert (
        run("workload", "list", "--status", "Running", "-o", "name", "--api", older).out == "web\n"
    )
    assert "Running" in run("workload", "get", "web", "--api", older).out
    assert run("node", "list", "-o", "name", "--api", older).out == "n1\n"
    assert run("node", "list", "--cluster", "east", "--api", older).out == "no nodes\n"


def test_a_workload_is_scheduled(run: Run, older: str) -> None:
    result = run("apply", "-f", "-", "--api", older, stdin="id: web\ncontainer: {image: nginx}\n")

    assert result.code == 0, result.err
    assert json.loads(OlderGateway.bodies[-1])["workload_id"] == "web"


def test_unknown_and_refused_workloads_are_reported(run: Run, older: str) -> None:
    missing = run("workload", "get", "nobody", "--api", older)
    refused = run("workload", "retry", "web", "--api", older)

    assert (missing.code, missing.err) == (1, "error: workload not found: nobody\n")
    assert refused.code == 1
    assert "it has not failed" in refused.err


def test_a_closed_connection_is_reopened(older: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OlderGateway, "leaves", True)

    with SchedulerClient(Gateway(older)) as client:
        found = [client.list_nodes()[0].node_id for _ in range(3)]

    assert found == ["n1", "n1", "n1"]


def test_an_unsupported_request_is_reported(run: Run, older: str) -> None:
    for words in (("node", "cordon", "n1"), ("gitops",), ("logs", "web"), ("events",)):
        result = run(*words, "--api", older)

        assert result.code == 1, words
        assert "not supported by this gateway version" in result.err, words
