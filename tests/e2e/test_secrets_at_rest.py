"""A secret is in plain text in no file of scheduler, agent and gateway, and in no environment."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import compose_binaries
from e2e.cluster import Cluster
from e2e.containers import container_ids
from e2e.gateways import Gateway
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

VALUE = "planted-7d1f0c53-value"
WITHIN_SECONDS = 60.0
SAMPLE_SECONDS = 0.01


@contextmanager
def watched_environments(pids: list[int]) -> Iterator[list[str]]:
    """Commands of these processes and their children whose environment had the value."""
    found: list[str] = []
    ended = Event()

    def watch() -> None:
        while not ended.is_set():
            for pid in _with_children(pids):
                try:
                    if VALUE.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                        found.append(Path(f"/proc/{pid}/cmdline").read_text())
                except OSError:  # it has exited
                    continue
            time.sleep(SAMPLE_SECONDS)

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _with_children(pids: list[int]) -> list[int]:
    found = list(pids)
    for pid in found:
        for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += [int(word) for word in tasks.read_text().split()]
            except OSError:
                continue
    return found


def files_with_value(directory: Path) -> list[Path]:
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if VALUE.encode() in path.read_bytes()]


def put_secret_through(gateway: Gateway, name: str) -> None:
    body = json.dumps({"name": name, "value": "cGxhbnRlZC03ZDFmMGM1My12YWx1ZQ=="}).encode()
    request = urllib.request.Request(  # of the gateway of this test
        f"{gateway.address}/api/v1/secrets/{name}",
        data=body,
        method="PUT",
        headers={"Content-Type": "application/json", "Idempotency-Key": name},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        assert response.status < 300


def a_container(image: str, secret: str) -> pb.WorkloadSpec:
    spec = pb.ContainerSpec(image=image, command=["sleep", "3600"], init=True)
    spec.env["PASSWORD"] = f"secret://{secret}"
    spec.files.add(path="/etc/key", content=f"secret://{secret}".encode())
    return pb.WorkloadSpec(type="container", container=spec)


def a_stack(image: str, secret: str) -> pb.WorkloadSpec:
    text = f"""
services:
  web:
    image: {image}
    command: [sleep, "3600"]
    init: true
    environment: {{PASSWORD: "${{PASSWORD}}"}}
"""
    stack = pb.ComposeSpec(inline_yaml=text, env={"PASSWORD": f"secret://{secret}"})
    return pb.WorkloadSpec(type="compose", compose=stack)


def test_a_secret_is_in_plain_text_in_no_file_and_no_environment(
    new_cluster: Callable[..., Cluster], demo_image: str, unique_id: str, tmp_path: Path
) -> None:
    cluster = new_cluster(
        agent={"PERSYS_COMPOSE_ENABLED": "true", "PERSYS_COMPOSE_BINARY": compose_binaries.V2}
    )
    cluster.start()
    gateway = Gateway(cluster.directory, {"main": cluster.target})
    try:
        gateway.process.start()
        pids = [cluster.scheduler.pid, cluster.agent.pid, gateway.process.pid]
        with watched_environments(pids) as environments:
            put_secret_through(gateway, unique_id)
            cluster.apply(unique_id, a_container(demo_image, unique_id))
            cluster.apply(f"{unique_id}-stack", a_stack(demo_image, unique_id))
            for name in (unique_id, f"{unique_id}-stack"):
                eventually(
                    lambda name=name: cluster.status(name) == "Running",  # type: ignore[misc]
                    f"{name} runs",
                    within=WITHIN_SECONDS,
                )
            files_while_running = files_with_value(cluster.directory)
            cluster.agent.kill()
            cluster.agent.start()
            cluster.wait_until_node_is("Ready")

        assert len(container_ids(cluster.node_id)) == 2
        assert environments == []
        assert files_while_running == []
        assert files_with_value(cluster.directory) == []
        for pid in (cluster.scheduler.pid, cluster.agent.pid, gateway.process.pid):
            limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
            core = next(line.split() for line in limits if line.startswith("Max core file size"))
            assert core[4:6] == ["0", "0"]
        for name in (unique_id, f"{unique_id}-stack"):
            cluster.client.delete(name)
        eventually(lambda: not cluster.statuses(), "both are gone", within=WITHIN_SECONDS)
    finally:
        gateway.process.close()
