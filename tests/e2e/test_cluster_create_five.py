"""`persys cluster create` with Debian packages, five schedulers and an etcd program that is sent."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.debs import build_debs
from e2e.ssh_hosts import Administrator, SshHost
from e2e.systemd_host import WORKLOAD
from e2e.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

VERSION = "1.0.0"
SCHEDULERS = 5
TOLERATED = 2
PARTS = ("etcd", "scheduler", "agent")


class FiveHosts:
    def __init__(self, hosts: Sequence[SshHost], administrator: Administrator, place: Path) -> None:
        self.hosts = hosts
        self.administrator = administrator
        self.etcd = place / "etcd"
        self._debs = sorted(place.glob("*.deb"))

    def create(self) -> str:
        packages = (word for deb in self._debs for word in ("--package", str(deb)))
        words = ("--schedulers", str(SCHEDULERS), "--etcd", str(self.etcd), *packages)
        ended = self.administrator.create(self.hosts, *words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def pids(self, *parts: str) -> dict[tuple[str, str], int]:
        return {(host.node_id, part): host.pid(part) for host in self.hosts for part in parts}

    def leader(self) -> SshHost:
        status = self.administrator.persysctl("recovery", "status")
        return next(host for host in self.hosts if f" at {host.address}:" in status)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FiveHosts]:
    directory = tmp_path_factory.mktemp("hosts")
    packages = build_debs(tmp_path_factory.mktemp("packages"), VERSION)
    shutil.copy(shutil.which("etcd") or "etcd", packages / "etcd")
    administrator = Administrator(directory)
    hosts: list[SshHost] = []
    try:
        for number in range(SCHEDULERS):
            hosts.append(SshHost(directory / str(number), administrator.public_key))
        for host in hosts:
            host.prepare()
        cluster = FiveHosts(hosts, administrator, packages)
        cluster.create()
        yield cluster
    finally:
        for host in hosts:
            host.close()


def test_every_host_has_the_packages_a_scheduler_and_the_sent_etcd(five: FiveHosts) -> None:
    for host in five.hosts:
        assert host.run("persysctl", "version") == f"persysctl {VERSION}\n"
        owner = host.run("dpkg", "-S", "/usr/lib/systemd/system/persys-scheduler.service")
        assert owner.startswith("persys-scheduler:")
        for part in PARTS:
            assert host.property(part, "ActiveState") == "active", host.journal(part)
            assert host.property(part, "UnitFileState") == "enabled"
        assert host.run("readlink", f"/proc/{host.pid('etcd')}/exe") == "/opt/persys-etcd/etcd\n"
    rows = [line.split() for line in five.administrator.persysctl("node", "list").splitlines()]
    assert {row[0]: row[1] for row in rows[1:]} == {host.node_id: "Ready" for host in five.hosts}


def test_settings_that_exist_before_the_packages_are_kept(five: FiveHosts) -> None:
    for host in five.hosts:
        assert "DOCKER_HOST=unix:///srv/docker.sock" in host.run("cat", "/etc/persys/agent.env")


def test_a_second_run_restarts_nothing(five: FiveHosts) -> None:
    before = five.pids(*PARTS)

    shown = five.create()

    assert [f"{host.node_id}: ready (unchanged)" in shown for host in five.hosts] == [True] * 5
    assert five.pids(*PARTS) == before


def test_two_lost_schedulers_are_tolerated(
    five: FiveHosts, demo_image: str, tmp_path: Path
) -> None:
    """The host of the leader and another one lose their scheduler and their member of etcd."""
    administrator, name = five.administrator, f"{five.hosts[0].node_id}-w"
    (tmp_path / "value").write_text("hunter2")
    (tmp_path / "spec.yaml").write_text(WORKLOAD.format(name=name, image=demo_image))
    leader = five.leader()
    lost = [leader, *(host for host in five.hosts if host is not leader)][:TOLERATED]
    for host in lost:
        host.run("systemctl", "stop", "persys-scheduler", "persys-etcd")
    try:
        eventually(lambda: five.leader() not in lost, "another leader", within=120)
        administrator.persysctl("secret", "put", name, "--from-file", str(tmp_path / "value"))
        administrator.persysctl("apply", "-f", str(tmp_path / "spec.yaml"), "--wait", "300s")
    finally:
        for host in lost:
            host.run("systemctl", "start", "persys-etcd", "persys-scheduler")
    administrator.persysctl("workload", "delete", name, "--wait", "300s")


def test_another_etcd_program_replaces_the_running_one(five: FiveHosts) -> None:
    before, others = five.pids("etcd"), five.pids("scheduler", "agent")
    with five.etcd.open("ab") as file:
        file.write(b"\n")  # another file, the same program

    five.create()

    after = five.pids("etcd")
    assert [host for host in before if before[host] == after[host]] == []
    assert five.pids("scheduler", "agent") == others
    assert "etcd" in five.administrator.persysctl("recovery", "status")
