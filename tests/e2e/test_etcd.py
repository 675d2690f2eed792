"""A whole cluster on etcd: the promises hold when the store is a separate process."""

import signal
from collections.abc import Callable, Iterator

import grpc
import pytest

from e2e.cluster import Cluster
from e2e.etcd import Etcd
from e2e.waiting import eventually
from persys.client import RequestRefusedError
from persys.errors import PersysError, UnavailableError
from persys.model.workload import Workload
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.agent.v1.agent_pb2_grpc import AgentServiceStub
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import records


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster_settings(etcd: Etcd) -> dict[str, dict[str, str]]:
    return {"scheduler": {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": etcd.endpoint}}


def test_promise_1_acknowledged_workloads_on_etcd_survive_kill_9_of_the_scheduler(
    cluster: Cluster, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, late = names(3), names(1)
    before = cluster.run_all(some, sleeper)

    cluster.apply_all(late, sleeper)
    cluster.scheduler.kill()
    cluster.scheduler.start()

    assert cluster.statuses().keys() >= {*some, *late}
    cluster.wait_for_all([*some, *late], "Running")
    assert cluster.containers(some) == before


def test_promise_5_while_etcd_hangs_reads_work_changes_are_refused_and_nothing_stops(
    cluster: Cluster, etcd: Etcd, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, refused, late = names(3), names(1)[0], names(1)
    before = cluster.run_all(some, sleeper)

    etcd.signal(signal.SIGSTOP)
    try:
        with pytest.raises(RequestRefusedError, match="etcd"):
            cluster.apply(refused, sleeper)
        assert cluster.statuses().items() >= dict.fromkeys(some, "Running").items()
        assert cluster.node().status == "Ready"
        assert cluster.containers(some) == before
    finally:
        etcd.signal(signal.SIGCONT)

    eventually(lambda: _applies(cluster, late[0], sleeper), "applies are taken again")
    cluster.wait_for_all([*some, *late], "Running")
    assert cluster.containers(some) == before


def test_a_killed_etcd_is_used_again_after_its_start(
    cluster: Cluster, etcd: Etcd, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, late = names(2), names(1)
    before = cluster.run_all(some, sleeper)

    etcd.kill()
    with pytest.raises(PersysError):
        cluster.apply(late[0], sleeper)
    etcd.start()

    eventually(lambda: _applies(cluster, late[0], sleeper), "applies are taken again")
    cluster.wait_for_all([*some, *late], "Running")
    assert cluster.containers(some) == before
    assert cluster.scheduler.runs


def test_promise_11_a_wiped_etcd_and_a_scheduler_restart_lose_no_container(
    cluster: Cluster, etcd: Etcd, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, late = names(3), names(1)
    before = cluster.run_all(some, sleeper)
    high_priority = pb.WorkloadSpec()
    high_priority.CopyFrom(sleeper)
    high_priority.placement.priority = 90
    cluster.apply(some[0], high_priority)  # no work for the agent, but it stores the intent
    eventually(lambda: kept_priority(cluster, some[0]) == 90, "the agent to keep the new rules")

    cluster.scheduler.kill()
    etcd.wipe()
    cluster.scheduler.start()

    eventually(lambda: cluster.client.get_mode().mode == "recovery", "the agent shows the loss")
    with pytest.raises(RequestRefusedError, match="recovery mode"):
        cluster.apply(late[0], sleeper)
    assert cluster.containers(some) == before

    response = cluster.client.rebuild_from_agents()
    assert response.nodes == 1
    assert list(response.left_out) == []
    cluster.wait_until_node_is("Ready")
    cluster.run_all(late, sleeper)
    cluster.wait_for_all(some, "Running")
    assert cluster.containers(some) == before
    assert cluster.client.get_workload(some[0]).spec.placement.priority == 90


def kept_priority(cluster: Cluster, workload_id: str) -> int | None:
    with grpc.insecure_channel(f"127.0.0.1:{cluster.agent_port}") as channel:
        kept = AgentServiceStub(channel).ListIntents(agent_pb2.ListIntentsRequest(), timeout=10)
        found = {view.id: records.decode(view.intent, Workload) for view in kept}
    return found[workload_id].rules.priority


def _applies(cluster: Cluster, workload_id: str, spec: pb.WorkloadSpec) -> bool:
    try:
        cluster.apply(workload_id, spec)
    except (RequestRefusedError, UnavailableError):
        return False
    return True
