"""Clusters of real processes for the tests, removed afterwards with every container they made."""

import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from e2e import vms
from e2e.cloud_guest import CloudGuest
from e2e.cluster import BIN, Cluster
from persys.wire.gen.control.v1 import control_pb2 as pb

LOG_CHARACTERS_SHOWN = 6_000

_open: list[Cluster] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the logs of the clusters that ran."""
    report = yield
    if report.failed:
        for cluster in _open:
            for name, log in cluster.logs().items():
                report.sections.append(
                    (f"{name} of {cluster.node_id}", log[-LOG_CHARACTERS_SHOWN:])
                )
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What has to wait long for the guest with cloud-init is last; the others keep their order."""
    items.sort(key=_wants_cloud_guest)


def _wants_cloud_guest(item: pytest.Item) -> bool:
    return "cloud_guest" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session", autouse=True)
def _early(request: pytest.FixtureRequest) -> None:
    """The guest with cloud-init comes up while the other tests run."""
    if any(map(_wants_cloud_guest, request.session.items)):
        request.getfixturevalue("cloud_guest")


@pytest.fixture(scope="session")
def cloud_guest(tmp_path_factory: pytest.TempPathFactory, demo_image: str) -> Iterator[CloudGuest]:
    with vms.vm_directory() as (_, settings):
        directory = tmp_path_factory.mktemp("cloud")
        made = Cluster(directory, agent=settings)
        try:
            made.start()
            guest = CloudGuest(made, directory)
            guest.begin()
            yield guest
        finally:
            made.close()


@pytest.fixture(scope="module")
def module_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    """A module that needs others defines its own: by process, by variable."""
    return {}


@pytest.fixture(scope="module")
def cluster(
    module_directory: Path, demo_image: str, cluster_settings: dict[str, dict[str, str]]
) -> Iterator[Cluster]:
    """One for all tests of a module. Whatever they do to it, they leave it running."""
    made = Cluster(
        module_directory,
        scheduler=cluster_settings.get("scheduler"),
        agent=cluster_settings.get("agent"),
    )
    _open.append(made)
    try:
        made.start()
        yield made
    finally:
        _open.remove(made)
        made.close()


@pytest.fixture
def persysctl(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command as a person or a script uses it, with the cluster of the module."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "persysctl", "--scheduler", cluster.target, *words],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERSYS_INSECURE": "true"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def new_cluster(tmp_path: Path, demo_image: str) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters of the test's own, not started yet."""
    made: list[Cluster] = []

    def make(
        *, scheduler: dict[str, str] | None = None, agent: dict[str, str] | None = None
    ) -> Cluster:
        directory = tmp_path / f"cluster-{len(made)}"
        directory.mkdir()
        made.append(Cluster(directory, scheduler=scheduler, agent=agent))
        _open.append(made[-1])
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            _open.remove(each)
            each.close()


@pytest.fixture
def names() -> Callable[[int], list[str]]:
    """So many workload ids that no other test uses."""

    def make(count: int) -> list[str]:
        mark = uuid4().hex[:6]
        return [f"w{mark}-{number}" for number in range(count)]

    return make


@pytest.fixture(scope="session")
def sleeper(demo_image: str) -> pb.WorkloadSpec:
    """Small, and gone at once when told to stop. With less cpu its start would take seconds: what
    prepares a container already runs within its limits."""
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=30, memory_mb=16),
        container=pb.ContainerSpec(image=demo_image, command=["sleep", "3600"], init=True),
    )
