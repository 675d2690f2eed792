"""Outages of the scheduler or the agent: workloads continue, and their status is correct afterwards."""

import time
from collections.abc import Callable

import pytest

from e2e.cluster import Cluster
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

HEARTBEAT_SECONDS = 1
LEASE_SECONDS = 3
GRACE_SECONDS = 2
WAYS = pytest.mark.parametrize("way", [pytest.param("stop", marks=pytest.mark.full), "kill"])


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "scheduler": {
            "SCHEDULER_HEARTBEAT_INTERVAL": f"{HEARTBEAT_SECONDS}s",
            "SCHEDULER_NODE_LEASE": f"{LEASE_SECONDS}s",
            "SCHEDULER_NODE_UNAVAILABLE_GRACE": f"{GRACE_SECONDS}s",
            "SCHEDULER_RECONCILE_INTERVAL": "1s",
        }
    }


@WAYS
def test_promise_6_an_agent_restart_does_not_restart_workloads(
    way: str, cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some = names(3)
    before = cluster.run_all(some, sleeper)

    getattr(cluster.agent, way)()
    cluster.agent.start()
    late = names(1)
    cluster.run_all(late, sleeper)

    assert cluster.containers(some) == before
    cluster.wait_for_all(some, "Running")


@WAYS
def test_promise_5_a_scheduler_outage_stops_no_workload(
    way: str, cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some = names(3)
    before = cluster.run_all(some, sleeper)

    getattr(cluster.scheduler, way)()
    time.sleep(2 * HEARTBEAT_SECONDS)  # the agent misses it
    assert cluster.containers(some) == before
    cluster.scheduler.start()

    cluster.wait_until_node_is("Ready")
    cluster.wait_for_all(some, "Running")
    cluster.run_all(names(1), sleeper)
    assert cluster.containers(some) == before


def test_changes_during_a_scheduler_outage_are_reported_after_it(
    cluster: Cluster, names: Callable[[int], list[str]], demo_image: str
) -> None:
    (name,) = names(1)
    finite = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=10, memory_mb=16),
        container=pb.ContainerSpec(
            image=demo_image, command=["sh", "-c", "sleep 3; exit 7"], restart_policy="no"
        ),
    )
    cluster.apply(name, finite)
    cluster.wait_for(name, "Running")

    cluster.scheduler.kill()
    eventually(lambda: not cluster.container(name).running, "it ends")
    cluster.scheduler.start()

    cluster.wait_for(name, "Failed")
    # A status of before the outage has no details until the agent reports.
    eventually(
        lambda: cluster.client.get_workload(name).metadata["container.exit_code"] == "7",
        "its exit code is reported",
    )
    cluster.client.delete(name)
    cluster.wait_until_gone([name])


def test_workloads_of_a_lost_node_are_unknown_until_its_agent_returns(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some = names(3)
    before = cluster.run_all(some, sleeper)

    cluster.agent.kill()
    cluster.wait_until_node_is("NotReady")
    cluster.wait_for_all(some, "Unknown")
    view = cluster.client.get_workload(some[0])
    assert view.reason.code == "NodeNotReady"
    assert view.reason.message == f"node {cluster.node_id} is not sending heartbeats"
    assert cluster.node().status_reason == f"no heartbeat for {LEASE_SECONDS}s"
    assert cluster.containers(some) == before

    cluster.agent.start()
    cluster.wait_until_node_is("Ready")
    cluster.wait_for_all(some, "Running")
    assert cluster.containers(some) == before


def test_a_copy_on_a_lost_node_is_deleted_when_the_node_returns(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    deleted, kept = names(1), names(1)
    before = cluster.run_all([*deleted, *kept], sleeper)
    cluster.agent.kill()
    cluster.wait_until_node_is("NotReady")

    cluster.delete_all(deleted)
    cluster.wait_until_gone(deleted)
    assert cluster.containers([*deleted, *kept]) == before
    cluster.agent.start()

    eventually(lambda: cluster.containers(deleted) == [], "the old copy is gone")
    cluster.wait_for_all(kept, "Running")
    assert not cluster.knows(deleted[0])


def test_a_workload_deleted_and_applied_again_while_its_node_is_lost_runs_once(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    cluster.run_all([name], sleeper)
    cluster.agent.kill()
    cluster.wait_until_node_is("NotReady")
    cluster.client.delete(name)
    cluster.wait_until_gone([name])

    changed = pb.WorkloadSpec()
    changed.CopyFrom(sleeper)
    changed.container.env["GREETING"] = "changed"
    cluster.apply(name, changed)
    view = cluster.wait_for(name, "Pending")
    assert "not ready" in view.reason.message
    cluster.agent.start()

    cluster.wait_for(name, "Running")
    time.sleep(3)  # longer than two passes, in which a late removal would happen
    assert cluster.status(name) == "Running"
    assert cluster.container(name).running
