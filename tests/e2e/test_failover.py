"""Node failure and drain, with real containers on two agents."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.containers import container_ids, inspect
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

PERSYSCTL = Path(sys.executable).parent / "persysctl"
BRISK = {
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_NODE_LEASE": "3s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "2s",
}


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    created = new_cluster(scheduler=BRISK)
    created.start()
    return created


def test_a_workload_of_a_dead_node_runs_only_on_its_new_node(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    cluster.run_all([name], sleeper)
    other = cluster.add_node()

    cluster.agent.kill()
    eventually(lambda: _runs_on(cluster, name, other), "it runs on the other node")
    assert cluster.containers([name]) != []  # it cannot be stopped there
    cluster.agent.start()

    eventually(lambda: cluster.containers([name]) == [], "the old copy is gone")
    (copy,) = inspect(container_ids(other))
    assert copy.running


def test_promise_12_a_node_is_empty_when_drain_completes(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some = names(4)
    cluster.run_all(some, sleeper)
    other = cluster.add_node()

    result = subprocess.run(
        [
            *(str(PERSYSCTL), "--scheduler", cluster.target),
            *("node", "drain", cluster.node_id, "--wait=2m"),
        ],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "is drained" in result.stdout
    assert cluster.containers() == []
    cluster.wait_for_all(some, "Running")
    assert {one.workload_id for one in inspect(container_ids(other))} == set(some)


def _runs_on(cluster: Cluster, name: str, node_id: str) -> bool:
    view = cluster.client.get_workload(name)
    return (view.status, view.assigned_node_id) == ("Running", node_id)
