"""Users change workloads while both processes are killed repeatedly; then the cluster converges.

Acknowledged requests are recorded. At the end the cluster must match them exactly.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence

from e2e.cluster import Cluster
from e2e.waiting import eventually
from persys.client import RequestRefusedError
from persys.errors import UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb

SEED = 20
STORM_SECONDS = 10.0
USERS = 4
NAMES_PER_USER = 3


class User(threading.Thread):
    """Repeats each request until it is acknowledged, so the last one of each workload must be in effect."""

    def __init__(
        self, cluster: Cluster, names: list[str], spec: pb.WorkloadSpec, *, seed: int
    ) -> None:
        super().__init__()
        self.revisions: dict[str, int] = {}  # of workloads that must exist
        self.stopped: set[str] = set()
        self._cluster = cluster
        self._names = names
        self._spec = spec
        self._random = random.Random(seed)
        self._changes = 0
        self._until = time.monotonic() + STORM_SECONDS

    def run(self) -> None:
        while time.monotonic() < self._until:
            self._change_workload(self._random.choice(self._names))
            time.sleep(self._random.uniform(0.0, 0.6))

    def _change_workload(self, name: str) -> None:
        self._changes += 1
        if name not in self.revisions or self._random.random() < 0.4:
            self._repeat_until_acknowledged(
                lambda: self._cluster.apply(name, _numbered(self._spec, self._changes))
            )
            self.revisions[name] = self._changes
        elif self._random.random() < 0.4:
            self._repeat_until_acknowledged(lambda: self._cluster.client.delete(name))
            del self.revisions[name]
            self.stopped.discard(name)
        else:
            word = "Running" if name in self.stopped else "Stopped"
            self._repeat_until_acknowledged(
                lambda: self._cluster.client.set_desired_state(name, word)
            )
            self.stopped ^= {name}

    def _repeat_until_acknowledged(self, request: Callable[[], object]) -> None:
        while True:
            try:
                request()
            except UnavailableError:
                time.sleep(0.1)
            except RequestRefusedError as err:
                # A repeated delete finds nothing if the first was performed without a response.
                if "not found" in str(err):
                    return
                # A workload that is being deleted cannot be applied before it is gone.
                time.sleep(0.1)
            else:
                return


def test_promise_1_after_repeated_kill_9_the_cluster_matches_the_acknowledged_requests(
    new_cluster: Callable[..., Cluster], names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    cluster = new_cluster(scheduler={"SCHEDULER_HEARTBEAT_INTERVAL": "1s"})
    cluster.start()
    random_source = random.Random(SEED)
    users = [
        User(cluster, names(NAMES_PER_USER), sleeper, seed=SEED + number) for number in range(USERS)
    ]

    for user in users:
        user.start()
    while any(user.is_alive() for user in users):
        time.sleep(random_source.uniform(0.2, 2.0))  # the times of kill -9
        victim = random_source.choice([cluster.scheduler, cluster.agent])
        victim.kill()
        time.sleep(random_source.uniform(0.0, 0.5))
        victim.start()
    for user in users:
        user.join()

    expected: dict[str, str] = {}
    revisions: dict[str, int] = {}
    for user in users:
        revisions |= user.revisions
        expected |= {
            name: "Stopped" if name in user.stopped else "Running" for name in user.revisions
        }
    eventually(
        lambda: cluster.statuses() == expected,
        lambda: f"expected {expected}, but are {cluster.client.list_workloads()}",
    )
    eventually(
        lambda: _in_docker(cluster) == {name: revisions[name] for name in _running(expected)},
        lambda: f"expected {expected} {revisions}, but there are {_in_docker(cluster)}",
    )
    found = [one.workload_id for one in cluster.containers()]
    assert len(found) == len(set(found)), "doubled"
    assert set(found) <= expected.keys()


def _running(expected: dict[str, str]) -> list[str]:
    return [name for name, status in expected.items() if status == "Running"]


def _in_docker(cluster: Cluster) -> dict[str, int]:
    """The revision number of each running container."""
    return {one.workload_id: _number_of(one.env) for one in cluster.containers() if one.running}


def _number_of(env: Sequence[str]) -> int:
    return int(next(word for word in env if word.startswith("NUMBER=")).removeprefix("NUMBER="))


def _numbered(spec: pb.WorkloadSpec, number: int) -> pb.WorkloadSpec:
    changed = pb.WorkloadSpec()
    changed.CopyFrom(spec)
    changed.container.env["NUMBER"] = str(number)
    return changed
