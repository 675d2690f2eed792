"""The packages of `make deb` on a real systemd: install, run a workload, upgrade, remove, purge."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.containers import Container
from e2e.debs import PACKAGES, WORKLOAD, DebianHost, build_debs
from e2e.systemd_host import PARTS
from e2e.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Installed:
    """What was seen after the first installation."""

    states: dict[str, str]
    enabled: set[str]
    version: str
    changed_files: list[str]


@dataclass(frozen=True)
class Upgraded:
    """What was seen before and after the upgrade. The gateway was stopped before."""

    containers: tuple[Container, Container]
    pids: tuple[dict[str, int], dict[str, int]]
    states: dict[str, str]
    version: str
    settings: str


@dataclass(frozen=True)
class Removed:
    """What was seen after all packages were removed, or purged."""

    container: Container
    services: str
    kept: set[str]


STATE = (
    *("/etc/persys", "/opt/persys", "/var/lib/persys/ca", "/var/lib/persys/scheduler"),
    *("/var/lib/persys/state.db", "/etc/persys/agent.yaml", "/etc/persys/scheduler.env"),
    "/etc/systemd/system/multi-user.target.wants/persys-agent.service",
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebianHost]:
    created = DebianHost(tmp_path_factory.mktemp("systemd"))
    try:
        created.wait_until_booted()
        yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def installed(host: DebianHost, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    host.install_packages(build_debs(tmp_path_factory.mktemp("first"), "1.0.dev1"))
    return Installed(
        states=host.states(),
        enabled={part for part in PARTS if host.property(part, "UnitFileState") == "enabled"},
        version=host.run("persysctl", "version").strip(),
        changed_files=host.changed_files(),
    )


@pytest.fixture(scope="module")
def workload(host: DebianHost, installed: Installed, demo_image: str) -> str:
    host.start_cluster()
    eventually(host.is_ready, lambda: host.journal("agent"))
    name = f"{host.node_id}-w"
    host.write("/srv/ada/workload.yaml", WORKLOAD.format(name=name, image=demo_image))
    host.run("persysctl", "apply", "-f", "/srv/ada/workload.yaml", "--wait")
    return name


@pytest.fixture(scope="module")
def upgraded(host: DebianHost, workload: str, tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    packages = build_debs(tmp_path_factory.mktemp("second"), "1.0")
    host.run("systemctl", "stop", "persys-gateway")
    container, pids = host.container(workload), host.pids()

    host.install_packages(packages)

    eventually(host.is_ready, lambda: host.journal("agent"))
    return Upgraded(
        containers=(container, host.container(workload)),
        pids=(pids, host.pids()),
        states=host.states(),
        version=host.run("persysctl", "version").strip(),
        settings=host.run("cat", "/etc/persys/ca.env"),
    )


@pytest.fixture(scope="module")
def removed(host: DebianHost, upgraded: Upgraded, workload: str) -> Removed:
    host.run("dpkg", "--remove", *sorted(PACKAGES))
    return after_removal(host, workload)


@pytest.fixture(scope="module")
def purged(host: DebianHost, removed: Removed, workload: str) -> Removed:
    host.run("dpkg", "--purge", *sorted(PACKAGES))
    return after_removal(host, workload)


def after_removal(host: DebianHost, workload: str) -> Removed:
    listed = ("systemctl", "list-units", "--no-legend", "--state=active", "persys-*")
    return Removed(
        container=host.container(workload),
        services=host.run(*listed),
        kept={path for path in STATE if host.exists(path)},
    )


def test_nothing_is_started_before_it_is_configured(installed: Installed) -> None:
    assert installed.states == dict.fromkeys(PARTS, "inactive")
    assert installed.enabled == set()


def test_the_programs_have_the_version_of_the_packages(installed: Installed) -> None:
    assert installed.version == "persysctl 1.0.dev1"
    assert installed.changed_files == []


def test_an_upgrade_does_not_restart_workloads(upgraded: Upgraded) -> None:
    before, after = upgraded.containers

    assert after == before
    assert after.running


def test_an_upgrade_restarts_the_services_that_run(upgraded: Upgraded) -> None:
    before, after = upgraded.pids

    assert upgraded.version == "persysctl 1.0"
    assert upgraded.states == {**dict.fromkeys(PARTS, "active"), "gateway": "inactive"}
    assert [part for part in PARTS if before[part] == after[part] != 0] == []


def test_an_upgrade_keeps_the_settings(upgraded: Upgraded) -> None:
    assert "\nPERSYS_CA_ADVERTISE=127.0.0.1:8888\n" in upgraded.settings


def test_removal_stops_the_services_and_keeps_state_and_workloads(
    upgraded: Upgraded, removed: Removed
) -> None:
    assert removed.services == ""
    assert removed.kept == set(STATE) - {"/opt/persys"}
    assert removed.container == upgraded.containers[0]


def test_purge_removes_the_state_and_keeps_workloads(upgraded: Upgraded, purged: Removed) -> None:
    assert purged.kept == set()
    assert purged.container == upgraded.containers[0]
