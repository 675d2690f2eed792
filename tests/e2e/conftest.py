"""Clusters of real processes. They are removed after the tests, with all their containers."""

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
# Longer than any --wait of a test, and than a rollout on two busy cores.
PERSYSCTL_SECONDS = 660

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
    """Tests of the VM with cloud-init run last; the others keep their order."""
    items.sort(key=_wants_cloud_guest)


def _wants_cloud_guest(item: pytest.Item) -> bool:
    return "cloud_guest" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session", autouse=True)
def _start_cloud_guest(request: pytest.FixtureRequest) -> None:
    """Start the VM with cloud-init; it boots while the other tests run."""
    if any(map(_wants_cloud_guest, request.session.items)):
        request.getfixturevalue("cloud_guest")


@pytest.fixture(scope="session")
def cloud_guest(tmp_path_factory: pytest.TempPathFactory, demo_image: str) -> Iterator[CloudGuest]:
    with vms.vm_directory() as (_, settings):
        directory = tmp_path_factory.mktemp("cloud")
        created = Cluster(directory, agent=settings)
        try:
            created.start()
            guest = CloudGuest(created, directory)
            guest.begin()
            yield guest
        finally:
            created.close()


@pytest.fixture(scope="module")
def module_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    """Variables by process. A module overrides this fixture to set its own."""
    return {}


@pytest.fixture(scope="module")
def cluster(
    module_directory: Path, demo_image: str, cluster_settings: dict[str, dict[str, str]]
) -> Iterator[Cluster]:
    """One for all tests of a module. Every test leaves it running."""
    created = Cluster(
        module_directory,
        scheduler=cluster_settings.get("scheduler"),
        agent=cluster_settings.get("agent"),
    )
    _open.append(created)
    try:
        created.start()
        yield created
    finally:
        _open.remove(created)
        created.close()


@pytest.fixture
def persysctl(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs persysctl against the cluster of the module."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PERSYS_INSECURE": "true"}
        return subprocess.run(
            [BIN / "persysctl", "--scheduler", cluster.target, *words],
            env={**own, **variables},
            capture_output=True,
            text=True,
            timeout=PERSYSCTL_SECONDS,
            check=False,
        )

    return run


@pytest.fixture
def new_cluster(tmp_path: Path, demo_image: str) -> Iterator[Callable[..., Cluster]]:
    """Creates clusters for one test. They are not started yet."""
    created: list[Cluster] = []

    def make(
        *, scheduler: dict[str, str] | None = None, agent: dict[str, str] | None = None
    ) -> Cluster:
        directory = tmp_path / f"cluster-{len(created)}"
        directory.mkdir()
        created.append(Cluster(directory, scheduler=scheduler, agent=agent))
        _open.append(created[-1])
        return created[-1]

    try:
        yield make
    finally:
        for each in created:
            _open.remove(each)
            each.close()


@pytest.fixture
def names() -> Callable[[int], list[str]]:
    """Creates unique workload ids."""

    def make(count: int) -> list[str]:
        mark = uuid4().hex[:6]
        return [f"w{mark}-{number}" for number in range(count)]

    return make


@pytest.fixture(scope="session")
def sleeper(demo_image: str) -> pb.WorkloadSpec:
    """Small, and stops at once. With less CPU its start would take seconds: the setup of a container
    already runs within its limits."""
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=30, memory_mb=16),
        container=pb.ContainerSpec(image=demo_image, command=["sleep", "3600"], init=True),
    )
