"""An isolated node stops workloads with stop_after; only then does another node run them."""

from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster
from e2e.containers import container_ids, inspect
from e2e.process import free_port
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb
from socket_proxy import PortProxy

BRISK = {
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_NODE_LEASE": "3s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "1s",
    "SCHEDULER_MISSING_GRACE_PERIOD": "1s",
}


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    return new_cluster(scheduler=BRISK, agent={"PERSYS_RECONCILE_INTERVAL": "1s"})


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[PortProxy]:
    """The connection between the first agent and the scheduler."""
    port = free_port()
    cluster.agent.set("PERSYS_SCHEDULER_ADDR", f"127.0.0.1:{port}")
    proxy = PortProxy(port, target=cluster.scheduler_port)
    try:
        proxy.restore()
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def with_data(sleeper: pb.WorkloadSpec) -> pb.WorkloadSpec:
    spec = pb.WorkloadSpec()
    spec.CopyFrom(sleeper)
    spec.stop_after_seconds = 4
    spec.container.stop_grace_seconds = 1
    spec.container.managed_volumes.add(name="data", driver="local", mount_path="/data")
    return spec


def test_promise_4_an_isolated_workload_with_data_stops_before_another_node_runs_it(
    cluster: Cluster,
    connection: PortProxy,
    names: Callable[[int], list[str]],
    with_data: pb.WorkloadSpec,
) -> None:
    (name,) = names(1)
    cluster.start()
    cluster.run_all([name], with_data)
    other = cluster.add_node(PERSYS_STORAGE_LOCAL_ROOT=str(cluster.directory / "other"))
    data = next((cluster.volumes).rglob("data"))

    connection.cut()
    eventually(lambda: not cluster.container(name).running, "it is stopped by its node", within=20)
    assert container_ids(other) == []

    def runs_elsewhere() -> bool:
        assert not cluster.container(name).running
        return any(one.running for one in inspect(container_ids(other)))

    eventually(runs_elsewhere, "it runs on the other node")
    assert cluster.wait_for(name, "Running").assigned_node_id == other
    connection.restore()
    eventually(lambda: cluster.containers([name]) == [], "the old copy is gone")
    assert data.is_dir()  # no request deleted its data
    assert all(one.running for one in inspect(container_ids(other)))


def test_an_agent_started_without_its_scheduler_applies_stop_after(
    cluster: Cluster, names: Callable[[int], list[str]], with_data: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    cluster.start()
    (before,) = cluster.run_all([name], with_data)
    with cluster.agent_client() as agent:
        eventually(
            lambda: "StoppedAlone" not in str(agent.list_workloads()), "the scheduler is known"
        )
    cluster.agent.kill()
    cluster.scheduler.kill()
    assert cluster.container(name).running  # no agent runs that could stop it

    cluster.agent.start()
    eventually(lambda: not cluster.container(name).running, "it is stopped", within=20)
    with cluster.agent_client() as agent:
        eventually(lambda: "StoppedAlone" in str(agent.list_workloads()), "the reason is reported")
    cluster.scheduler.start()

    eventually(lambda: cluster.container(name).running, "it runs again")
    after = cluster.container(name)
    assert after.id == before.id
    assert cluster.wait_for(name, "Running").epoch == 1
