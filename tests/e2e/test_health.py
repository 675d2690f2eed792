"""Scheduler, agents and Docker: health of workloads, and a node over its threshold."""

from collections.abc import Callable

from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb


def test_an_unhealthy_workload_is_reported_and_restarted(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    spec = pb.WorkloadSpec()
    spec.CopyFrom(sleeper)
    spec.container.command[:] = ["sh", "-c", "touch /tmp/well; exec sleep 3600"]
    spec.container.health_check.CopyFrom(
        pb.HealthCheck(
            command=["test", "-e", "/tmp/well"],
            interval_seconds=1,
            retries=1,
            restart_unhealthy=True,
        )
    )
    cluster.apply(name, spec)
    eventually(lambda: _health(cluster, name) == "healthy", "it is healthy")
    before = cluster.container(name)

    docker("exec", before.id, "rm", "/tmp/well")
    eventually(
        lambda: "WorkloadUnhealthy" in _event_kinds(cluster, name), "it is reported as unhealthy"
    )
    eventually(
        lambda: (
            _health(cluster, name) == "healthy"
            and cluster.container(name).started_at > before.started_at
        ),
        "it was started again and is healthy",
    )
    assert cluster.status(name) == "Running"
    assert cluster.container(name).id == before.id


def test_a_workload_is_placed_elsewhere_when_a_node_exceeds_its_threshold(
    new_cluster: Callable[..., Cluster], names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    full = {"PERSYS_ADMISSION_MEMORY_PERCENT": "1", "PERSYS_ADMISSION_HALF_LIFE": "0s"}
    cluster = new_cluster(agent=full)
    cluster.start()
    first, second = names(2)

    def is_unplaceable() -> bool:
        if not cluster.knows(first):
            cluster.apply(first, sleeper)
        view = cluster.client.get_workload(first)
        if view.status == "Running":  # before the first usage report nothing is refused
            cluster.client.delete(first)
            cluster.wait_until_gone([first])
        return view.reason.code == "Unplaceable"

    eventually(is_unplaceable, "it is refused")
    assert "this node is full: memory" in cluster.client.get_workload(first).reason.message
    other = cluster.add_node()
    cluster.apply(second, sleeper)
    for name in (first, second):
        cluster.wait_for(name, "Running")
        assert cluster.client.get_workload(name).assigned_node_id == other


def _health(cluster: Cluster, name: str) -> str:
    return cluster.client.get_workload(name).metadata.get("container.health", "")


def _event_kinds(cluster: Cluster, name: str) -> list[str]:
    return [event.kind for event in cluster.client.list_events(workload_id=name).events]
