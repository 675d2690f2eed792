"""Docker is unreachable, or hangs, under a running cluster."""

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb
from socket_proxy import Proxy

APPLY_SECONDS = 3


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    created = Proxy(tmp_path_factory.mktemp("docker") / "docker.sock")
    created.restore()
    yield created
    created.close()


@pytest.fixture(scope="module")
def cluster_settings(proxy: Proxy) -> dict[str, dict[str, str]]:
    return {"agent": {"DOCKER_HOST": f"unix://{proxy.path}"}}


def test_promise_11_nothing_is_deleted_while_docker_is_unreachable(
    cluster: Cluster, proxy: Proxy, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, late = names(5), names(1)
    before = cluster.run_all(some, sleeper)

    proxy.cut()
    cluster.wait_for_all(some, "Unknown")
    view = cluster.client.get_workload(some[0])
    cluster.apply_all(late, sleeper)
    assert view.reason.message == "docker is not responding"
    assert cluster.containers() == before

    proxy.restore()
    cluster.wait_for_all(some, "Running", within=5)
    cluster.wait_for_all(late, "Running")
    assert cluster.containers(some) == before
    assert len(cluster.containers(late)) == 1


def test_a_docker_outage_during_work_creates_no_duplicates(
    cluster: Cluster, proxy: Proxy, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    twenty = names(20)

    cluster.apply_all(twenty, sleeper)
    eventually(lambda: len(cluster.containers(twenty)) > 2, "some have a container")
    proxy.cut()
    running = [one for one in cluster.containers(twenty) if one.running]
    proxy.restore()

    cluster.wait_for_all(twenty, "Running")
    after = cluster.containers(twenty)
    assert Counter(one.workload_id for one in after) == Counter(twenty)
    assert set(running) <= set(after)


def test_a_delete_during_a_docker_outage_is_performed_after_it(
    cluster: Cluster, proxy: Proxy, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    (name,) = names(1)
    cluster.run_all([name], sleeper)

    proxy.cut()
    cluster.client.delete(name)
    cluster.wait_for(name, "Deleting")
    assert len(cluster.containers([name])) == 1

    proxy.restore()
    cluster.wait_until_gone([name])
    assert cluster.containers([name]) == []


def test_promise_8_an_apply_while_docker_hangs_is_performed_after_it(
    cluster: Cluster, proxy: Proxy, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some, late = names(2), names(1)
    before = cluster.run_all(some, sleeper)

    proxy.hold()
    cluster.apply_all(late, sleeper)
    cluster.wait_for_all(late, "Unknown")
    assert cluster.containers([*some, *late]) == before

    proxy.release()
    cluster.wait_for_all([*some, *late], "Running")
    assert cluster.containers(some) == before
    assert len(cluster.containers(late)) == 1


def test_a_long_outage_does_not_fail_workloads(
    new_cluster: Callable[..., Cluster],
    proxy: Proxy,
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
) -> None:
    cluster = new_cluster(
        scheduler={
            "SCHEDULER_AGENT_APPLY_TIMEOUT": f"{APPLY_SECONDS}s",
            "SCHEDULER_RECONCILE_INTERVAL": "1s",
        },
        agent={"DOCKER_HOST": f"unix://{proxy.path}"},
    )
    cluster.start()
    (name,), (late,) = names(1), names(1)
    before = cluster.run_all([name], sleeper)

    proxy.cut()
    cluster.wait_for(name, "Unknown", within=5)
    cluster.apply(late, sleeper)
    cluster.wait_for(late, "Pending")
    time.sleep(2 * APPLY_SECONDS)  # longer than the deadline of an apply

    assert cluster.statuses() == {name: "Unknown", late: "Pending"}
    assert "does not respond" in cluster.client.get_workload(late).reason.message
    assert [view.retry_attempts for view in cluster.client.list_workloads()] == [0, 0]
    proxy.restore()
    cluster.wait_for_all([name, late], "Running")
    assert cluster.containers([name]) == before
