"""Many containers at once, and many idle ones."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

IDLE_SECONDS = 7  # three times the longest interval below
SETTLED_SECONDS = 2


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    """Several passes and heartbeats happen while the idle cluster is observed."""
    return {
        "scheduler": {
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_RECONCILE_INTERVAL": "1s",
            "SCHEDULER_DRIFT_DETECT_INTERVAL": "2s",
        },
        "agent": {"PERSYS_RECONCILE_INTERVAL": "2s"},
    }


def test_a_hundred_workloads_applied_at_once_all_run_exactly_once(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    hundred = names(100)
    tiny = pb.WorkloadSpec()
    tiny.CopyFrom(sleeper)
    tiny.resources.cpu_millicores = 19  # two cores are enough

    cluster.apply_all(hundred, tiny)
    cluster.wait_for_all(hundred, "Running")

    found = cluster.containers()
    assert Counter(one.workload_id for one in found) == Counter(hundred)
    assert all(one.running for one in found)

    cluster.delete_all(hundred)
    cluster.wait_until_gone(hundred)

    assert cluster.containers() == []


def test_a_manually_removed_container_is_recreated_within_two_seconds(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    (before,) = cluster.run_all([name], sleeper)

    # On a busy host Docker alone may take seconds: the time of a plain container is subtracted.
    beyond_docker = []
    for _ in range(3):
        bare_seconds = _seconds_of_a_bare_container(sleeper.container.image)
        docker("rm", "-f", cluster.container(name).id)
        seconds = eventually(
            lambda: any(one.running for one in cluster.containers([name])), "it is back"
        )
        beyond_docker.append(seconds - bare_seconds)
        cluster.wait_for(name, "Running")
        if beyond_docker[-1] < 2:
            break

    assert min(beyond_docker) < 2
    assert cluster.container(name).id != before.id


def test_promise_9_an_idle_cluster_writes_nothing(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    cluster.run_all(names(20), sleeper)
    eventually(lambda: _actions_under_way(cluster) == 0, "the agent is done")
    before = _settled(cluster)

    time.sleep(IDLE_SECONDS)  # nothing may be written in this time

    assert _written(cluster) == before


def _seconds_of_a_bare_container(image: str) -> float:
    started_at = time.monotonic()
    created = docker("run", "-d", "--init", image, "sleep", "3600")
    seconds = time.monotonic() - started_at
    docker("rm", "-f", created)
    return seconds


def _actions_under_way(cluster: Cluster) -> int:
    with cluster.agent_client() as agent:
        return len(agent.list_actions(status="pending") + agent.list_actions(status="running"))


def _settled(cluster: Cluster) -> tuple[float, dict[str, str], dict[str, int]]:
    """The written state, after the last work has been reported and stored."""
    written = _written(cluster)

    def is_stable() -> bool:
        nonlocal written
        time.sleep(SETTLED_SECONDS)
        before, written = written, _written(cluster)
        return before == written

    eventually(is_stable, "the cluster to be idle")
    return written


def _written(cluster: Cluster) -> tuple[float, dict[str, str], dict[str, int]]:
    """Transactions of the store, lines of the logs, and the modification time of each file."""
    return (
        cluster.metric("persys_scheduler_store_transactions_total"),
        cluster.logs(),
        {path.name: path.stat().st_mtime_ns for path in cluster.directory.iterdir()},
    )
