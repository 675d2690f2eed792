"""New revisions, stop and start, volumes, and both kinds of failure."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.process import free_port
from e2e.waiting import eventually
from persys.client import RequestRefusedError
from persys.wire.gen.control.v1 import control_pb2 as pb

FIRST_RETRY_SECONDS = 5
JITTER = 0.2


class EmptyRegistry(ThreadingHTTPServer):
    """A registry on this host that has no image, and counts the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.requested_paths: list[str] = []


class _Refusal(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, EmptyRegistry)
        if self.path == "/v2/":
            self._answer(200, b"{}")
            return
        self.server.requested_paths.append(self.path)
        self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "unknown"}]}')

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """No output on the terminal."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def sleeper(sleeper: pb.WorkloadSpec) -> pb.WorkloadSpec:
    """With enough CPU to run commands in it."""
    faster = _changed(sleeper)
    faster.resources.cpu_millicores = 200
    return faster


@pytest.fixture
def registry() -> Iterator[EmptyRegistry]:
    with EmptyRegistry() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def _changed(spec: pb.WorkloadSpec, **env: str) -> pb.WorkloadSpec:
    changed = pb.WorkloadSpec()
    changed.CopyFrom(spec)
    changed.container.env.update(env)
    return changed


def _with_volumes(spec: pb.WorkloadSpec) -> pb.WorkloadSpec:
    changed = _changed(spec)
    for name, retain_policy in (("data", "Delete"), ("archive", "Retain")):
        changed.container.managed_volumes.add(
            name=name, driver="local", mount_path=f"/{name}", retain_policy=retain_policy
        )
    return changed


def test_a_new_revision_replaces_the_container_exactly_once(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    (before,) = cluster.run_all([name], sleeper)
    first = cluster.client.get_workload(name).revision_id

    second = cluster.apply(name, _changed(sleeper, GREETING="hello"))
    eventually(
        lambda: any(one.id != before.id for one in cluster.containers([name])),
        "another container",
    )
    cluster.wait_for(name, "Running")
    after = cluster.container(name)
    same = cluster.apply(name, _changed(sleeper, GREETING="hello"))
    cluster.run_all(names(1), sleeper)  # effects of the repeated apply would precede this

    assert second not in (first, "")
    assert same == second
    assert cluster.container(name) == after
    assert "GREETING=hello" in after.env
    with cluster.agent_client() as agent:
        done = agent.list_actions(workload_id=name)
    assert [(one.action_type, one.status) for one in done] == [("apply_workload", "completed")] * 2


def test_promise_10_only_a_delete_removes_data(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    (before,) = cluster.run_all([name], _with_volumes(sleeper))
    docker("exec", before.id, "sh", "-c", "echo kept > /data/file; echo kept > /archive/file")

    cluster.client.set_desired_state(name, "Stopped")
    cluster.wait_for(name, "Stopped")
    assert not cluster.container(name).running
    cluster.client.set_desired_state(name, "Running")
    cluster.wait_for(name, "Running")
    started = cluster.container(name)
    assert docker("exec", started.id, "cat", "/data/file", "/archive/file") == "kept\nkept"

    cluster.apply(name, _changed(_with_volumes(sleeper), GREETING="hello"))
    eventually(
        lambda: any(one.id != started.id and one.running for one in cluster.containers([name])),
        "another container",
    )
    replaced = cluster.container(name)
    assert docker("exec", replaced.id, "cat", "/data/file", "/archive/file") == "kept\nkept"

    cluster.client.delete(name)
    cluster.wait_until_gone([name])
    assert not (cluster.volumes / name / "data").exists()
    assert (cluster.volumes / name / "archive" / "file").read_text() == "kept\n"


def test_a_retained_volume_is_listed_reused_and_deleted(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    spec = pb.WorkloadSpec()
    spec.CopyFrom(sleeper)
    spec.container.managed_volumes.add(
        name="data", mount_path="/data", size_gb=1, retain_policy="Retain"
    )
    (container,) = cluster.run_all([name], spec)
    write_too_much = "fallocate -l 2000000000 /data/file || rm /data/file; echo kept > /data/small"
    docker("exec", container.id, "sh", "-c", write_too_much)
    assert docker("exec", container.id, "ls", "/data") == "small"
    (there,) = cluster.client.list_volumes(workload_id=name).volumes
    assert (there.node_id, there.state, there.size_bytes) == (cluster.node_id, "attached", 1 << 30)
    with pytest.raises(RequestRefusedError, match="delete the workload first"):
        cluster.client.delete_volume(name, "data")

    cluster.client.delete(name)
    cluster.wait_until_gone([name])
    (left,) = cluster.client.list_volumes(workload_id=name).volumes
    assert left.state == "retained"

    (again,) = cluster.run_all([name], spec)
    assert docker("exec", again.id, "cat", "/data/small") == "kept"
    cluster.client.delete(name)
    cluster.wait_until_gone([name])
    cluster.client.delete_volume(name, "data")
    assert not cluster.client.list_volumes(workload_id=name).volumes
    assert str(cluster.volumes) not in Path("/proc/mounts").read_text()


def test_a_missing_image_is_not_retried(
    cluster: Cluster,
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
    registry: EmptyRegistry,
) -> None:
    (name,) = names(1)
    absent = _changed(sleeper)
    absent.container.image = f"127.0.0.1:{registry.server_port}/absent:1"

    cluster.apply(name, absent)
    view = cluster.wait_for(name, "Failed")
    request_count = len(registry.requested_paths)
    time.sleep(FIRST_RETRY_SECONDS * (1 + JITTER) + 1)  # a retry would have happened

    assert view.failure_reason == "IMAGE_NOT_FOUND"
    assert "absent" in view.reason.message
    assert not view.reason.retryable
    assert not view.HasField("retry_next_at")
    assert 0 < request_count == len(registry.requested_paths)
    assert cluster.status(name) == "Failed"

    cluster.run_all([name], sleeper)  # another revision is tried again


def test_an_occupied_host_port_is_retried_until_it_is_free(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    port = free_port()
    published = _changed(sleeper)
    published.container.ports.add(host_port=port, container_port=80, protocol="tcp")

    with socket.socket() as foreign:
        foreign.bind(("0.0.0.0", port))
        foreign.listen()
        cluster.apply(name, published)
        first = cluster.wait_for(name, "Failed")
        wait = first.retry_next_at.ToDatetime() - first.reason.last_transition.ToDatetime()

    cluster.wait_for(name, "Running")
    assert first.failure_reason == "NETWORK_ERROR"
    assert f"{port}/tcp" in first.reason.message
    assert first.reason.retryable
    assert abs(wait.total_seconds() - FIRST_RETRY_SECONDS) <= FIRST_RETRY_SECONDS * JITTER + 0.5
    assert cluster.container(name).running
