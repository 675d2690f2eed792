"""Containers that the scheduler does not know: kept, adopted without a restart, or deleted."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from builders import a_workload
from e2e.cluster import Cluster
from e2e.waiting import eventually
from persys.model.placement import Resources
from persys.model.spec import ContainerSpec
from persys.wire.agent.messages import apply_message
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceStub

PERSYSCTL = Path(sys.executable).parent / "persysctl"


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    scheduler = {"SCHEDULER_HEARTBEAT_INTERVAL": "1s", "SCHEDULER_MISSING_GRACE_PERIOD": "1s"}
    return {"scheduler": scheduler}


@pytest.fixture
def orphans(
    cluster: Cluster, names: Callable[[int], list[str]], demo_image: str
) -> tuple[str, str]:
    """Two running containers whose epoch is no longer in the store."""
    first, second = names(2)
    spec = ContainerSpec(demo_image, command=("sleep", "3600"), init=True)
    with grpc.insecure_channel(f"127.0.0.1:{cluster.agent_port}") as channel:
        for name in (first, second):
            workload = a_workload(name, spec=spec, resources=Resources(30, 16))
            AgentServiceStub(channel).ApplyWorkload(apply_message(workload, 7), timeout=30)
    eventually(
        lambda: sum(one.running for one in cluster.containers((first, second))) == 2,
        "both run",
    )
    eventually(lambda: _listed(cluster, "yes") == 2, "both are noted and can be adopted")
    return first, second


def test_an_orphan_is_adopted_without_a_restart_or_deleted(
    cluster: Cluster, orphans: tuple[str, str]
) -> None:
    kept, unwanted = orphans
    before = cluster.container(kept)

    _ctl(cluster, "orphans", "adopt", cluster.node_id, kept)
    view = cluster.wait_for(kept, "Running")
    _ctl(cluster, "orphans", "delete", cluster.node_id, unwanted)
    eventually(lambda: cluster.containers([unwanted]) == [], "the other one is gone")

    assert view.assigned_node_id == cluster.node_id
    assert view.epoch > 7
    assert cluster.container(kept) == before
    eventually(lambda: "no orphans" in _ctl(cluster, "orphans", "list"), "none is left")


def _listed(cluster: Cluster, adoptable: str) -> int:
    return sum(
        adoptable in line.split()
        for line in _ctl(cluster, "orphans", "list").splitlines()
        if cluster.node_id in line
    )


def _ctl(cluster: Cluster, *words: str) -> str:
    result = subprocess.run(
        [str(PERSYSCTL), "--scheduler", cluster.target, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
