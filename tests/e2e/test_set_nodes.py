"""Members of sets on real nodes that fail or are drained: two agents on one Docker."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Self

import pytest

from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.waiting import eventually

SETTINGS = {
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_NODE_LEASE": "10s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "2s",
}
Persysctl = Callable[..., subprocess.CompletedProcess[str]]
Apply = Callable[..., None]

SET = """\
    id: ID
    replicas: 2
    update: {max_parallel: 2, min_healthy: 1s}
    resources: {cpu_millicores: 20, memory_mb: 16}
    container:
      image: IMAGE
      init: true
      command: [sh, -c, "START; touch /tmp/well; exec sleep 3600"]
      env: {VERSION: "NUMBER"}
      health_check: {type: exec, command: [test, -e, /tmp/well], interval_seconds: 1, timeout_seconds: 60}
"""
VOLUME = """\
      managed_volumes: [{name: data, mount_path: /data}]
"""


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    created = new_cluster(scheduler=SETTINGS)
    created.start()
    return created


@pytest.fixture
def apply(persysctl: Persysctl, unique_id: str, demo_image: str, tmp_path: Path) -> Apply:
    """Applies the set with the id of the test, and returns when its rollout has ended."""

    def applied(*, version: int = 1, start: str = "true", more: str = "") -> None:
        path = tmp_path / "set.yaml"
        path.write_text(
            dedent(SET + more)
            .replace("ID", unique_id, 1)
            .replace("IMAGE", demo_image)
            .replace("START", start)
            .replace("NUMBER", str(version))
        )
        done = persysctl("apply", "-f", str(path), "--wait", "300s")
        assert done.returncode == 0, done.stderr + done.stdout

    return applied


def test_promise_17_a_member_with_data_on_a_lost_node_is_listed_and_updated_when_it_returns(
    cluster: Cluster, apply: Apply, unique_id: str
) -> None:
    other = cluster.add_node()
    apply(start="echo 1 >> /data/runs", more=VOLUME)
    members = cluster.client.get_set(unique_id).members
    assert {member.node_id for member in members} == {cluster.node_id, other}
    (lost,) = (one.workload_id for one in members if one.node_id == cluster.node_id)

    cluster.agent.kill()
    cluster.wait_until_node_is("NotReady")
    apply(version=2, start="echo 2 >> /data/runs", more=VOLUME)

    shown = {one.workload_id: one.health for one in cluster.client.get_set(unique_id).members}
    assert shown[lost] == "lost"
    assert "VERSION=1" in cluster.container(lost).env
    cluster.agent.start()
    eventually(lambda: _is_updated(cluster, lost), f"{lost} is updated", within=120)
    runs = docker("exec", cluster.container(lost).id, "cat", "/data/runs")
    assert runs.split() == ["1", "2"]  # its own volume


def _is_updated(cluster: Cluster, name: str) -> bool:
    found = cluster.containers([name])
    return any(one.running and "VERSION=2" in one.env for one in found)


def test_a_drain_stops_a_member_only_when_it_is_healthy_on_another_node(
    cluster: Cluster, persysctl: Persysctl, apply: Apply, unique_id: str
) -> None:
    apply(start="sleep 3")
    cluster.add_node()

    with DockerEvents(unique_id) as events:
        done = persysctl("node", "drain", cluster.node_id, "--wait=5m")
        assert done.returncode == 0, done.stderr + done.stdout
        eventually(lambda: len(events.of("die")) == 2, lambda: f"both have moved: {events.seen}")

    for member in (f"{unique_id}-0", f"{unique_id}-1"):
        stopped_at = events.seen.index(("kill", member))
        assert ("health_status: healthy", member) in events.seen[:stopped_at], events.seen


class DockerEvents:
    """What happens to the containers of a set, in the sequence of Docker: actions and workload ids."""

    def __init__(self, set_id: str) -> None:
        self._set_id = set_id
        self.seen: list[tuple[str, str]] = []
        self._reader = subprocess.Popen(
            ["docker", "events", "--format", "{{json .}}", "--filter", "label=persys.workload_id"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        # Docker sends events from the moment of the subscription: wait for one of our own.
        eventually(self._is_subscribed, "events of Docker arrive")
        return self

    def __exit__(self, *_error: object) -> None:
        self._reader.terminate()
        self._reader.wait(timeout=30)
        self._thread.join(timeout=30)
        assert self._reader.stdout is not None
        self._reader.stdout.close()

    def of(self, action: str) -> list[str]:
        return [name for found, name in self.seen if found == action]

    def _is_subscribed(self) -> bool:
        probe = docker("ps", "-q", "--filter", f"label=persys.workload_id={self._set_id}-0")
        docker("exec", probe.strip(), "true")
        return any(action.startswith("exec_") for action, _ in self.seen)

    def _read(self) -> None:
        assert self._reader.stdout is not None
        for line in self._reader.stdout:
            event = json.loads(line)
            name = event["Actor"]["Attributes"].get("persys.workload_id", "")
            if name.startswith(f"{self._set_id}-"):
                self.seen.append((event["Action"], name))
