"""Sets of VMs on the libvirt of the host. Health is observed in libvirt and in the guests."""

import json
import math
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from e2e import vms
from e2e.cluster import Cluster
from e2e.vms import TINY, add_image, page, virsh
from e2e.waiting import eventually

REPLICAS = 6
MAX_PARALLEL = 2
# For six emulated VMs on two busy cores.
ROLLOUT_SECONDS = 600
POLL_SECONDS = 0.5

Persysctl = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.full, pytest.mark.timeout(2 * ROLLOUT_SECONDS + 300)]


class HealthyVMs:
    """The VMs of a set whose web server has answered since their last boot.

    `fewest` is the lowest count, `booted` the VMs that were started again. A boot takes longer than the
    interval between two looks, so none is missed.
    """

    def __init__(self, set_id: str) -> None:
        self._prefix = f"{set_id}-"
        self._healthy: dict[str, str] = {}  # ids of domains in libvirt, by name
        self._seen: dict[str, str] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.fewest = REPLICAS
        self.booted: set[str] = set()

    def __enter__(self) -> Self:
        eventually(lambda: self._look() == REPLICAS, "all VMs are healthy", within=ROLLOUT_SECONDS)
        self.booted.clear()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join(timeout=60)

    def count(self) -> int:
        return len(self._healthy)

    def _watch(self) -> None:
        while not self._end.wait(POLL_SECONDS):
            self.fewest = min(self.fewest, self._look())

    def _look(self) -> int:
        rows = (line.split() for line in virsh("list").splitlines())
        running = {name: number for number, name, *_ in rows if name.startswith(self._prefix)}
        self.booted |= {name for name, number in running.items() if self._seen.get(name) != number}
        self._seen |= running
        self._healthy = {
            name: number for name, number in self._healthy.items() if running.get(name) == number
        }
        lowest = len(self._healthy)
        for name in running.keys() - self._healthy.keys():
            if page(address_of(name), "hostname") == name:
                self._healthy[name] = running[name]
        return lowest if self._thread.is_alive() else len(self._healthy)


def address_of(name: str) -> str:
    """By the leases of libvirt; an invalid one if it has none yet."""
    fields = virsh("domifaddr", name, check=False).split()
    return fields[3].partition("/")[0] if len(fields) > 3 else "127.0.0.1:9"


@pytest.fixture(scope="module")
def vm_directory() -> Iterator[tuple[Path, dict[str, str]]]:
    with vms.vm_directory() as created:
        yield created


@pytest.fixture(scope="module")
def cluster_settings(vm_directory: tuple[Path, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {"agent": vm_directory[1]}


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[None]:
    """As many nodes on this host as the VMs need: each node has the CPUs of the host."""
    needed = math.ceil(REPLICAS / (os.cpu_count() or 1))
    with ExitStack() as stack:
        for _ in range(needed - 1):
            _, settings = stack.enter_context(vms.vm_directory())
            cluster.add_node(**settings)
        add_image(cluster, "tiny", TINY)
        yield


@pytest.fixture
def set_file(
    cluster: Cluster, nodes: None, unique_id: str, persysctl: Persysctl, tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Writes the spec file of a set with the id of the test. The set is deleted afterwards."""

    def write(
        *,
        memory_mb: int = 160,
        image: str = "tiny",
        port: int = 80,
        script: str = "",
        **update: str,
    ) -> str:
        check = {"type": "http", "port": port, "path": "/hostname", "interval_seconds": 2}
        policy = {"max_parallel": MAX_PARALLEL, "min_healthy": "2s", "healthy_deadline": "500s"}
        document = {
            "id": unique_id,
            "replicas": REPLICAS,
            "update": {**policy, **update},
            "vm": {
                "vcpus": 1,
                "memory_mb": memory_mb,
                "os_image": image,
                "networks": [{"bridge": "default", "dhcp": True}],
                "stop_grace_seconds": 5,
                "health_check": {**check, "retries": 5, "start_period_seconds": 480},
            },
        }
        if script:
            document["vm"]["cloud_init"] = {"user_data": f"#!/bin/sh\n{script}\n"}  # type: ignore[index]
        path = tmp_path / "set.yaml"
        path.write_text(json.dumps(document))
        return str(path)

    yield write
    persysctl("delete", unique_id)
    eventually(lambda: not members(cluster, unique_id), "the members are deleted", within=240)


def members(cluster: Cluster, set_id: str) -> list[str]:
    return [name for name in cluster.statuses() if name.startswith(f"{set_id}-")]


def apply(persysctl: Persysctl, path: str) -> subprocess.CompletedProcess[str]:
    return persysctl("apply", "-f", path, "--wait", f"{ROLLOUT_SECONDS}s")


def memory_kib(set_id: str) -> list[str]:
    """The memory of each VM, as libvirt reports it."""
    found = [virsh("dumpxml", f"{set_id}-{index}", check=False) for index in range(REPLICAS)]
    return [text.partition("<memory unit='KiB'>")[2].partition("<")[0] for text in found]


def test_promise_14_an_update_keeps_enough_vms_healthy(
    persysctl: Persysctl, set_file: Callable[..., str], unique_id: str
) -> None:
    done = apply(persysctl, set_file())
    assert done.returncode == 0, done.stderr + done.stdout

    with HealthyVMs(unique_id) as healthy:
        done = apply(persysctl, set_file(memory_mb=176))
        assert done.returncode == 0, done.stderr + done.stdout

    assert healthy.fewest >= REPLICAS - MAX_PARALLEL
    assert memory_kib(unique_id) == [str(176 * 1024)] * REPLICAS


@pytest.mark.parametrize(
    ("change", "update"),
    [
        ({"image": "missing"}, {}),
        ({"port": 81}, {"healthy_deadline": "240s"}),
        ({"script": "(sleep 20; poweroff -f) &"}, {"min_healthy": "30s"}),
    ],
    ids=["missing-image", "failing-check", "crash-after-20s"],
)
def test_promise_15_vms_that_fail_their_gate_are_rolled_back_after_one_batch(
    persysctl: Persysctl,
    set_file: Callable[..., str],
    unique_id: str,
    change: dict[str, object],
    update: dict[str, str],
) -> None:
    done = apply(persysctl, set_file())
    assert done.returncode == 0, done.stderr + done.stdout

    with HealthyVMs(unique_id) as healthy:
        done = apply(persysctl, set_file(memory_mb=176, **change, **update))
        assert done.returncode != 0
        assert "rolled back" in done.stderr + done.stdout
        eventually(
            lambda: (
                memory_kib(unique_id) == [str(160 * 1024)] * REPLICAS
                and healthy.count() == REPLICAS
            ),
            "all VMs are healthy, as before the update",
            within=ROLLOUT_SECONDS,
        )

    assert healthy.fewest >= REPLICAS - MAX_PARALLEL
    assert len(healthy.booted) <= MAX_PARALLEL
