"""persysctl events --watch while the scheduler is killed and started again."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import BIN, Cluster
from e2e.waiting import DEADLINE_SECONDS, eventually
from persys.wire.gen.control.v1 import control_pb2 as pb


class Watch:
    def __init__(self, target: str, directory: Path) -> None:
        self._file = directory / "events"
        with self._file.open("wb") as out:
            self._process = subprocess.Popen(
                [BIN / "persysctl", "--scheduler", target, "events", "--watch", "-o", "json"],
                env={"PATH": os.environ["PATH"], "HOME": str(directory), "PERSYS_INSECURE": "true"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
            )

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def has_event(self, kind: str, workload_id: str) -> bool:
        assert self._process.poll() is None, "the watch has ended"
        return (kind, workload_id) in [(e["kind"], e["workload_id"]) for e in self.events()]

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=DEADLINE_SECONDS)


@pytest.fixture
def watch(cluster: Cluster, tmp_path: Path) -> Iterator[Watch]:
    created = Watch(cluster.target, tmp_path)
    yield created
    created.close()


def test_a_watch_delivers_each_event_once_across_kill_9_of_the_scheduler(
    cluster: Cluster, watch: Watch, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    early, late = names(4), names(4)

    # Only its first event shows that the watch has started.
    def has_started() -> bool:
        cluster.client.cordon(cluster.node_id)
        cluster.client.uncordon(cluster.node_id)
        return bool(watch.events())

    eventually(has_started, "the watch shows something")
    cluster.apply_all(early, sleeper)
    cluster.scheduler.kill()
    cluster.scheduler.start()
    cluster.apply_all(late, sleeper)
    cluster.wait_for_all([*early, *late], "Running")

    for name in [*early, *late]:
        eventually(partial(watch.has_event, "WorkloadRunning", name), f"the event of {name}")
    seen = [int(event["sequence"]) for event in watch.events()]
    kept = cluster.client.list_events(after=seen[0] - 1)
    assert seen == [event.sequence for event in kept.events if event.sequence <= seen[-1]]
    assert seen == list(range(seen[0], seen[-1] + 1))
    cluster.delete_all([*early, *late])
    cluster.wait_until_gone([*early, *late])
