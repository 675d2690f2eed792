"""A full disk of the scheduler, and its recovery."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.waiting import eventually
from persys.client import RequestRefusedError
from persys.wire.gen.control.v1 import control_pb2 as pb

DISK_MB = 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", where], check=True)
    yield where
    subprocess.run(["umount", where], check=True)


@pytest.fixture
def cluster_on_small_disk(
    small_disk: Path, new_cluster: Callable[..., Cluster]
) -> Iterator[Cluster]:
    cluster = new_cluster(scheduler={"PERSYS_STORE": f"sqlite:{small_disk / 'scheduler.db'}"})
    cluster.start()
    yield cluster
    cluster.scheduler.close()  # before its disk is unmounted


def test_an_apply_on_a_full_disk_is_refused_without_traces(
    cluster_on_small_disk: Cluster,
    small_disk: Path,
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
) -> None:
    cluster = cluster_on_small_disk
    some = names(3)
    before = cluster.run_all(some, sleeper)
    large = pb.WorkloadSpec()
    large.CopyFrom(sleeper)
    large.container.env["LARGE"] = "x" * 100_000

    _fill(small_disk / "filler")
    acknowledged, refused, text = _apply_until_refused(cluster, names(DISK_MB * 10), large)

    assert "disk is full" in text
    assert not cluster.knows(refused)
    assert cluster.statuses().items() >= dict.fromkeys(some, "Running").items()
    assert cluster.containers(some) == before

    (small_disk / "filler").unlink()
    eventually(lambda: cluster.client.get_mode().mode == "normal", "all is well again")
    cluster.run_all([late := names(1)[0]], sleeper)

    cluster.scheduler.kill()
    cluster.scheduler.start()
    assert cluster.statuses().keys() == {*some, *acknowledged, late}
    cluster.wait_for_all(some, "Running")
    assert cluster.containers(some) == before
    assert cluster.containers([refused]) == []


def _fill(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
    except OSError:
        pass  # full


def _apply_until_refused(
    cluster: Cluster, workload_ids: list[str], spec: pb.WorkloadSpec
) -> tuple[list[str], str, str]:
    """SQLite first uses free pages of its files. Returns the accepted ids, the refused one and the error."""
    for number, workload_id in enumerate(workload_ids):
        try:
            cluster.apply(workload_id, spec)
        except RequestRefusedError as err:
            return workload_ids[:number], workload_id, str(err)
    raise AssertionError("the disk never was full")
