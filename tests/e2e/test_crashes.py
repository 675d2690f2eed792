"""kill -9 of the scheduler, the agent or both while many workloads are applied."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster import APPLIES_AT_ONCE, Cluster
from e2e.containers import Container, container_ids
from e2e.waiting import DEADLINE_SECONDS, eventually
from persys.errors import UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb

WORKLOAD_COUNT = 36
KILLED_AFTER = 12  # acknowledged applies


class Applies:
    """Applies in the background, and the acknowledged ones."""

    def __init__(
        self, cluster: Cluster, workload_ids: Sequence[str], spec: pb.WorkloadSpec
    ) -> None:
        self.acknowledged: list[str] = []
        self.half_way = threading.Event()
        self._cluster = cluster
        self._spec = spec
        self._thread = threading.Thread(target=self._apply_all, args=(workload_ids,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _apply_all(self, workload_ids: Sequence[str]) -> None:
        with ThreadPoolExecutor(APPLIES_AT_ONCE) as pool:
            list(pool.map(self._apply, workload_ids))

    def _apply(self, workload_id: str) -> None:
        try:
            self._cluster.apply(workload_id, self._spec)
        except UnavailableError:
            return  # not acknowledged: no guarantee
        self.acknowledged.append(workload_id)
        if len(self.acknowledged) == KILLED_AFTER:
            self.half_way.set()


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("scheduler",), marks=pytest.mark.full),
        pytest.param(("agent",), marks=pytest.mark.full),
        ("scheduler", "agent"),
    ],
    ids=" and ".join,
)
def test_promise_1_acknowledged_workloads_survive_kill_9_of(
    victims: tuple[str, ...],
    new_cluster: Callable[..., Cluster],
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
) -> None:
    cluster = new_cluster()
    cluster.start()
    cluster.run_all(names(5), sleeper)

    applies = Applies(cluster, names(WORKLOAD_COUNT), sleeper)
    assert applies.half_way.wait(DEADLINE_SECONDS)
    if victims == ("agent",):
        eventually(lambda: len(container_ids(cluster.node_id)) > 8, "some have a container")
    for victim in victims:
        getattr(cluster, victim).kill()
    applies.wait()
    running_before = [one for one in cluster.containers() if one.running]
    for victim in victims:
        getattr(cluster, victim).start()

    known = cluster.statuses().keys()
    assert known >= set(applies.acknowledged)
    assert "scheduler" not in victims or len(applies.acknowledged) < WORKLOAD_COUNT, (
        "killed too late"
    )
    cluster.wait_for_all(known, "Running")
    after = cluster.containers()
    assert Counter(one.workload_id for one in after) == Counter(known)
    assert _restarted(running_before, after) == []


def test_promise_1_an_acknowledged_delete_survives_kill_9_of_both(
    new_cluster: Callable[..., Cluster],
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
) -> None:
    cluster = new_cluster()
    cluster.start()
    kept, to_delete = names(3), names(10)
    cluster.run_all([*kept, *to_delete], sleeper)
    running_before = cluster.containers(kept)

    cluster.delete_all(to_delete)
    cluster.scheduler.kill()
    cluster.agent.kill()
    cluster.scheduler.start()
    cluster.agent.start()
    cluster.wait_until_gone(to_delete)

    assert cluster.containers() == running_before


def _restarted(before: Sequence[Container], after: Sequence[Container]) -> list[Container]:
    return sorted(set(before) - set(after))
