"""Two nodes: a workload that is too large for its node moves to the other, and can move back."""

import os
from collections.abc import Callable

from e2e.cluster import Cluster
from e2e.containers import container_ids, inspect
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

ALL_CPU = (os.cpu_count() or 1) * 1000


def test_promise_3_a_revision_too_large_for_its_node_moves(
    new_cluster: Callable[..., Cluster], names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    cluster, large_node = _a_small_and_a_large_node(new_cluster)
    (name,) = names(1)
    _run_on_the_small_node(cluster, name, sleeper)

    cluster.apply(name, _with_cpu(sleeper, ALL_CPU - 200))
    eventually(lambda: _runs_on(cluster, name, large_node), "it runs on the other node")

    eventually(lambda: cluster.containers() == [], "the old copy is gone")
    (copy,) = inspect(container_ids(large_node))
    assert copy.running


def test_a_moved_workload_can_be_deleted_and_applied_again(
    new_cluster: Callable[..., Cluster], names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    cluster, large_node = _a_small_and_a_large_node(new_cluster)
    (name,) = names(1)
    _run_on_the_small_node(cluster, name, sleeper)
    cluster.apply(name, _with_cpu(sleeper, ALL_CPU - 200))
    eventually(lambda: _runs_on(cluster, name, large_node), "it runs on the other node")

    cluster.client.delete(name)
    cluster.wait_until_gone([name])
    cluster.apply(name, _with_cpu(sleeper, ALL_CPU - 200))

    eventually(
        lambda: _runs_on(cluster, name, large_node),
        lambda: f"it runs again: {cluster.client.get_workload(name)}",
    )


def _a_small_and_a_large_node(new_cluster: Callable[..., Cluster]) -> tuple[Cluster, str]:
    cluster = new_cluster(agent={"PERSYS_SYSTEM_RESERVE_CPU_MILLICORES": str(ALL_CPU - 100)})
    cluster.start()
    return cluster, cluster.add_node()


def _run_on_the_small_node(cluster: Cluster, name: str, sleeper: pb.WorkloadSpec) -> None:
    """Placement would prefer the larger node, so that one is filled first."""
    ballast = f"{name}-ballast"
    cluster.run_all([ballast], _with_cpu(sleeper, ALL_CPU))
    cluster.run_all([name], sleeper)
    assert cluster.client.get_workload(name).assigned_node_id == cluster.node_id
    cluster.client.delete(ballast)
    cluster.wait_until_gone([ballast])


def _runs_on(cluster: Cluster, name: str, node_id: str) -> bool:
    view = cluster.client.get_workload(name)
    return (view.status, view.assigned_node_id) == ("Running", node_id)


def _with_cpu(spec: pb.WorkloadSpec, millicores: int) -> pb.WorkloadSpec:
    changed = pb.WorkloadSpec()
    changed.CopyFrom(spec)
    changed.resources.cpu_millicores = millicores
    return changed
