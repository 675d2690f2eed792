"""Container specs on the real Docker, checked from inside the container."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
MEBIBYTE = 1 << 20

# The first of these that exists: cgroup v2, then v1.
MEMORY = (
    "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"
)
PIDS = "cat /sys/fs/cgroup/pids.max 2>/dev/null || cat /sys/fs/cgroup/pids/pids.max"
CPU = "cat /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"


def test_limits_are_set_on_the_container(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    sleeper.resources.memory_bytes = 32 * MEBIBYTE
    sleeper.resources.cpu_millicores = 500
    sleeper.resources.pids_max = 20
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    assert agent.inside(unique_id, "sh", "-c", MEMORY) == str(32 * MEBIBYTE)
    assert agent.inside(unique_id, "sh", "-c", PIDS) == "20"
    assert agent.inside(unique_id, "sh", "-c", CPU).split()[0] == "50000"


def test_the_default_pids_limit_of_the_node_applies(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    assert agent.inside(unique_id, "sh", "-c", PIDS) == "4096"


def test_a_container_over_its_memory_limit_is_reported_as_oom_killed(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    memory_hog = shell("x=a; while true; do x=$x$x; done")
    memory_hog.resources.memory_bytes = 16 * MEBIBYTE
    agent.apply(unique_id, memory_hog)

    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["reason_code"] == "OOMKilled"
    assert status.metadata["container.exit_code"] == "137"
    assert "out of memory" in status.message


def test_a_container_cannot_have_more_processes_than_its_limit(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    forking = shell(
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; echo forked all; exit 0"
    )
    forking.resources.pids_max = 6
    agent.apply(unique_id, forking)

    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["failure_reason"] == "RUNTIME_ERROR"
    assert "fork" in status.metadata["container.stderr"]


def test_command_args_and_env_reach_the_container(
    agent: "Agent", unique_id: str, demo_image: str
) -> None:
    spec = agent_pb2.ContainerSpec(
        image=demo_image,
        command=["sh", "-c"],
        args=['echo "$GREETING" > /tmp/out; exec sleep 3600'],
        env={"GREETING": "hello = world"},
        init=True,
        labels={"team": "blue"},
    )
    agent.apply(unique_id, spec)
    agent.wait_for(unique_id, RUNNING)

    assert agent.inside(unique_id, "cat", "/tmp/out") == "hello = world"


def test_a_published_port_is_reachable(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]", free_port: int
) -> None:
    server = shell("echo served > /tmp/index.html; exec httpd -f -p 80 -h /tmp", restart="always")
    server.ports.add(host_port=free_port, container_port=80)
    agent.apply(unique_id, server)
    status = agent.wait_for(unique_id, RUNNING)

    assert status.metadata["container.ports"] == f"{free_port}->80/tcp"
    assert b"served" in fetch(free_port)


def test_binds_and_managed_volumes_hold_data(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec, tmp_path: Path
) -> None:
    (tmp_path / "given").write_text("from outside")
    sleeper.volumes.add(host_path=str(tmp_path), container_path="/given", read_only=True)
    sleeper.managed_volumes.add(name="scratch", mount_path="/scratch", driver="local")
    sleeper.managed_volumes.add(name="precious", mount_path="/precious", retain_policy="Retain")
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    assert agent.inside(unique_id, "cat", "/given/given") == "from outside"
    agent.inside(unique_id, "sh", "-c", "echo one > /scratch/file; echo two > /precious/file")
    sleeper.env["NEW"] = "revision"
    agent.apply(unique_id, sleeper, revision="r2")
    agent.wait_for(unique_id, RUNNING)
    assert agent.inside(unique_id, "cat", "/scratch/file", "/precious/file") == "one\ntwo"
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    assert not (agent.volumes / unique_id / "scratch").exists()
    assert (agent.volumes / unique_id / "precious" / "file").read_text() == "two\n"


def test_a_read_only_bind_cannot_be_written(
    agent: "Agent",
    unique_id: str,
    shell: "Callable[..., agent_pb2.ContainerSpec]",
    tmp_path: Path,
) -> None:
    writer = shell("echo no > /given/file")
    writer.volumes.add(host_path=str(tmp_path), container_path="/given", read_only=True)
    agent.apply(unique_id, writer)

    agent.wait_for(unique_id, FAILED)

    assert list(tmp_path.iterdir()) == []


def test_a_bind_of_a_missing_path_is_a_storage_error(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec, tmp_path: Path
) -> None:
    sleeper.volumes.add(host_path=str(tmp_path / "absent"), container_path="/given")
    agent.apply(unique_id, sleeper)

    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["failure_reason"] == "STORAGE_ERROR"
    assert not (tmp_path / "absent").exists()


def test_a_host_port_in_use_is_a_network_error_and_a_retry_succeeds(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        sleeper.ports.add(host_port=holder.getsockname()[1], container_port=80)
        agent.apply(unique_id, sleeper)
        status = agent.wait_for(unique_id, FAILED)

        assert status.metadata["failure_reason"] == "NETWORK_ERROR"
        assert status.metadata["retry_terminal"] == "false"
    response = agent.apply(unique_id, sleeper)

    assert not response.skipped
    agent.wait_for(unique_id, RUNNING)


def test_without_a_scheduler_the_agent_retries_automatically(
    new_agent: "Callable[..., Agent]", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent = new_agent(PERSYS_RECONCILE_INTERVAL="500ms")
    agent.start()
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", 0))
        holder.listen()
        sleeper.ports.add(host_port=holder.getsockname()[1], container_port=80)
        agent.apply(unique_id, sleeper)
        agent.wait_for(unique_id, FAILED)

    agent.wait_for(unique_id, RUNNING)


def test_an_image_that_its_registry_does_not_have_is_not_found(
    agent: "Agent", unique_id: str, empty_registry: str
) -> None:
    agent.apply(unique_id, agent_pb2.ContainerSpec(image=f"{empty_registry}/nothing:here"))

    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["failure_reason"] == "IMAGE_NOT_FOUND"
    assert status.metadata["retry_terminal"] == "true"


@pytest.mark.parametrize("policy", ["Never", "IfNotPresent"])
def test_a_failed_pull_has_its_reason(
    agent: "Agent", unique_id: str, policy: str, free_port: int
) -> None:
    spec = agent_pb2.ContainerSpec(
        image=f"127.0.0.1:{free_port}/nothing:here", image_pull_policy=policy
    )
    agent.apply(unique_id, spec)

    status = agent.wait_for(unique_id, FAILED)

    reason = "IMAGE_NOT_FOUND" if policy == "Never" else "IMAGE_PULL_FAILED"
    assert status.metadata["failure_reason"] == reason
    assert status.metadata["retry_terminal"] == ("true" if policy == "Never" else "false")


def test_a_command_that_does_not_exist_is_an_invalid_spec(
    agent: "Agent", unique_id: str, demo_image: str
) -> None:
    agent.apply(unique_id, agent_pb2.ContainerSpec(image=demo_image, command=["/no/such/thing"]))

    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["failure_reason"] == "INVALID_SPEC"
    assert status.metadata["retry_terminal"] == "true"


def test_a_delete_does_not_wait_for_a_hanging_pull(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        sleeper.image = f"127.0.0.1:{mute.getsockname()[1]}/slow:image"
        agent.apply(unique_id, sleeper)
        caller, _ = mute.accept()
        with caller:
            agent.delete(unique_id)

            agent.wait_until_gone(unique_id)


def test_the_old_revision_runs_during_the_pull_of_the_new_image(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    old = agent.wait_for(unique_id, RUNNING).metadata["container.id"]
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        sleeper.image = f"127.0.0.1:{mute.getsockname()[1]}/slow:image"
        agent.apply(unique_id, sleeper, revision="r2")
        caller, _ = mute.accept()
        with caller:
            assert agent.containers(unique_id, running=True) == [old]
            assert agent.status(unique_id).actual_state == agent_pb2.ACTUAL_STATE_PENDING

    status = agent.wait_for(unique_id, FAILED)
    assert status.revision_id == "r2"
    assert status.metadata["failure_reason"] == "IMAGE_PULL_FAILED"
    assert agent.containers(unique_id, running=True) == [old]


class EmptyRegistry(BaseHTTPRequestHandler):
    """A registry without images."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v2/" else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if self.path != "/v2/" and self.command == "GET":
            # Docker evaluates the code only with a detail, as real registries send it.
            error = {"code": "MANIFEST_UNKNOWN", "message": "unknown", "detail": {"Tag": "here"}}
            self.wfile.write(json.dumps({"errors": [error]}).encode())

    do_HEAD = do_GET  # noqa: N815 - named by the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def empty_registry() -> "Iterator[str]":
    server = ThreadingHTTPServer(("127.0.0.1", 0), EmptyRegistry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(port: int) -> bytes:
    deadline = time.monotonic() + 10
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                connection.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
                response = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            response = b""
        if response:
            return response
        assert time.monotonic() < deadline, "the port does not answer"
