"""`persys cluster create --hosts` on hosts with systemd and sshd, as docs/how-to/create-cluster.md has it."""

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e import images
from e2e.containers import docker
from e2e.ssh_hosts import Administrator, SshHost
from e2e.systemd_host import WORKLOAD
from e2e.waiting import eventually
from persys.cli.hosts.bundle import own_wheel

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]

WHEELS = images.ROOT / "deploy" / "docker" / "wheels"
KILLED = -9
STEPS_PER_RUN = 9
RUNS_MAX = 20
UNITS = {
    "first": ("ca", "etcd", "scheduler", "gateway", "agent"),
    "other": ("etcd", "scheduler", "agent"),
}


class Created:
    def __init__(self, hosts: Sequence[SshHost], administrator: Administrator, wheel: Path) -> None:
        self.hosts = hosts
        self.administrator = administrator
        self._package = ("--package", str(wheel), "--wheelhouse", str(WHEELS))
        self.interruptions = 0

    def create(self, *words: str, **variables: str) -> tuple[int, str]:
        ended = self.administrator.create(self.hosts, *self._package, *words, **variables)
        return ended.returncode, ended.stdout + ended.stderr

    def create_with_interruptions(self) -> str:
        """Each run is killed after a few steps; the last one completes the cluster."""
        for _ in range(RUNS_MAX):
            code, shown = self.create(PERSYS_FAILPOINT=f"hosts.step:{STEPS_PER_RUN}")
            if code != KILLED:
                assert code == 0, shown
                return shown
            self.interruptions += 1
        raise AssertionError(f"not complete after {RUNS_MAX} runs: {shown}")

    def units(self) -> Iterator[tuple[SshHost, str]]:
        for host in self.hosts:
            for part in UNITS["first" if host is self.hosts[0] else "other"]:
                yield host, part

    def state(self) -> dict[str, str]:
        """What must not change in a second run: files, and processes with the time of their start."""
        places = "/etc/persys /etc/systemd/system/persys-* /opt/persys/bin"
        files = f"find {places} -type f | sort | xargs sha256sum"
        found = {host.node_id: host.run("sh", "-c", files) for host in self.hosts}
        for host, part in self.units():
            found[f"{host.node_id} {part}"] = str(host.pid(part))
        home = self.administrator.home / ".persys"
        found["home"] = "".join(
            f"{path.name} {path.read_text()}" for path in sorted(home.rglob("*")) if path.is_file()
        )
        return found


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Created]:
    directory = tmp_path_factory.mktemp("hosts")
    administrator = Administrator(directory)
    hosts: list[SshHost] = []
    try:
        for number, user in enumerate(("root", "ada", "root")):
            place = directory / str(number)
            hosts.append(SshHost(place, administrator.public_key, user=user))
        for host in hosts:
            host.prepare()
        images.fetch_wheels()
        cluster = Created(hosts, administrator, own_wheel(directory))
        cluster.create_with_interruptions()
        yield cluster
    finally:
        for host in hosts:
            host.close()


def test_an_interrupted_set_up_is_continued(created: Created) -> None:
    assert created.interruptions >= 3


def test_every_unit_is_active_and_every_node_is_ready(created: Created) -> None:
    for host, part in created.units():
        assert host.property(part, "ActiveState") == "active", host.journal(part)
        assert host.property(part, "UnitFileState") == "enabled"
    rows = [line.split() for line in created.administrator.persysctl("node", "list").splitlines()]
    assert {row[0]: row[1] for row in rows[1:]} == {host.node_id: "Ready" for host in created.hosts}
    assert "etcd" in created.administrator.persysctl("recovery", "status")


def test_a_second_run_changes_nothing(created: Created) -> None:
    before = created.state()

    code, shown = created.create()

    assert code == 0, shown
    assert [f"{host.node_id}: ready (unchanged)" in shown for host in created.hosts] == [True] * 3
    assert "next:       persysctl node list" in shown
    assert created.state() == before


def test_a_dry_run_shows_that_every_step_is_done(created: Created) -> None:
    code, shown = created.create("--dry-run")

    assert code == 0, shown
    assert "todo" not in shown
    assert shown.splitlines()[-1].startswith("0 of ")


def test_other_schedulers_are_refused(created: Created) -> None:
    code, shown = created.create("--schedulers", "1")

    assert code == 1
    assert "belongs to a cluster with the schedulers" in shown
    assert shown.endswith("error: nothing was changed\n")


def test_etcd_refuses_clients_without_a_certificate(created: Created) -> None:
    address = f"https://{created.hosts[0].address}:2379/version"
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    with pytest.raises((ssl.SSLError, urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(address, timeout=30, context=trusting)


def test_a_secret_is_readable_by_the_next_leader(
    created: Created, demo_image: str, tmp_path: Path
) -> None:
    """The schedulers share one key: the secret is put on one leader and sent by another one."""
    administrator, name = created.administrator, f"{created.hosts[0].node_id}-w"
    (tmp_path / "value").write_text("hunter2")
    (tmp_path / "spec.yaml").write_text(WORKLOAD.format(name=name, image=demo_image))
    administrator.persysctl("secret", "put", name, "--from-file", str(tmp_path / "value"))
    leader = next(
        host
        for host in created.hosts
        if f" at {host.address}:" in administrator.persysctl("recovery", "status")
    )

    leader.run("systemctl", "stop", "persys-scheduler")
    try:
        administrator.persysctl("apply", "-f", str(tmp_path / "spec.yaml"), "--wait", "300s")
    finally:
        leader.run("systemctl", "start", "persys-scheduler")

    ids = docker("ps", "-q", "--filter", f"label=persys.workload_id={name}").split()
    assert len(ids) == 1
    assert "PASSWORD=hunter2" in docker("inspect", "-f", "{{.Config.Env}}", *ids)
    administrator.persysctl("workload", "delete", name, "--wait", "300s")


def test_a_host_with_problems_is_named_and_nothing_is_changed(
    created: Created, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A fourth host: without sudo, and with another process on the port of the agent."""
    directory = tmp_path_factory.mktemp("fourth")
    host = SshHost(directory, created.administrator.public_key, user="eve")
    try:
        host.prepare()
        host.run("rm", "/etc/sudoers.d/persys")
        listen = "import socket,time; s=socket.create_server(('', 50051)); time.sleep(600)"
        host.run("systemd-run", "python3", "-c", listen)
        connect = "import socket; socket.create_connection(('127.0.0.1', 50051))"
        eventually(
            lambda: host.try_run("python3", "-c", connect).returncode == 0, "the port is used"
        )

        ended = created.administrator.create([*created.hosts, host])

        assert ended.returncode == 1
        named = f"error: eve@{host.address}: "
        assert f"{named}user eve is not root and cannot use sudo without a password" in ended.stderr
        assert f"{named}port 50051 of the agent is in use by another process" in ended.stderr
        assert ended.stderr.endswith("error: nothing was changed\n")
        assert host.try_run("test", "-e", "/opt/persys").returncode != 0
    finally:
        host.close()


def test_one_host_has_the_embedded_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("one")
    administrator = Administrator(directory)
    host = SshHost(directory / "host", administrator.public_key)
    try:
        host.prepare()
        images.fetch_wheels()

        ended = administrator.create([host], "--wheelhouse", str(WHEELS), "--context", "one")

        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "1 node is ready; 1 scheduler with the embedded store" in ended.stdout
        assert "sqlite" in administrator.persysctl("recovery", "status")
        assert host.try_run("test", "-e", "/etc/persys/etcd.env").returncode != 0
    finally:
        host.close()
