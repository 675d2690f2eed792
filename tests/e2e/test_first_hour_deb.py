"""The first hour of an administrator with the Debian packages, in a terminal of a host with systemd."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import compose_binaries
from e2e import first_hour as steps
from e2e.containers import docker, remove_all_of
from e2e.debs import build_debs
from e2e.first_hour import INSTALL_SECONDS, SHELL, User
from e2e.systemd_host import SystemdHost
from e2e.terminal import PROMPTS, Terminal

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

OLD, NEW = "1.0.0", "1.0.1"
HOME = "/srv/ada"
INSTALL = "apt-get install --quiet --yes --no-install-recommends"
SETTINGS_OF_SCHEDULER = (
    "PERSYS_CA_ADDR=127.0.0.1:8888",
    # A lost node is detected within seconds instead of minutes.
    "SCHEDULER_HEARTBEAT_INTERVAL=2s",
    "SCHEDULER_NODE_LEASE=20s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE=5s",
)
SETTINGS_OF_AGENT = (
    "DOCKER_HOST=unix:///srv/docker.sock",
    "PERSYS_VM_ENABLED=false",
    "PERSYS_COMPOSE_BINARY=/usr/local/bin/docker-compose",
    "PERSYS_STOP_GRACE=1s",
    *(f"PERSYS_ADMISSION_{name}_PERCENT=100" for name in ("CPU", "MEMORY", "DISK")),
)


class Administrator(User):
    """Installs the packages on a host whose agent uses the Docker of this host."""

    def __init__(self, place: Path, image: str) -> None:
        self.host = SystemdHost(place)
        self.host.wait_until_booted()
        self.host.run("mkdir", "-p", HOME)
        variables = {"HOME": HOME, "DEBIAN_FRONTEND": "noninteractive", **PROMPTS}
        words = ["docker", "exec", "-it", "--workdir", HOME]
        words += [f"--env={name}={value}" for name, value in variables.items()]
        terminal = Terminal(
            [*words, self.host.node_id, *SHELL],
            environment={"PATH": os.environ["PATH"]},
            directory=place,
        )
        super().__init__(terminal, self.host.node_id, image)
        self.other_id = f"{self.node_id}-2"
        self.type("stty -echo")

    def write(self, name: str, text: str) -> None:
        self.host.write(f"{HOME}/{name}", text, mode="644")

    def set_up(self) -> None:
        """A CA, a scheduler and an agent, as in docs/how-to/production.md."""
        self.host.add_variables("ca", "PERSYS_CA_ADVERTISE=127.0.0.1:8888")
        self.host.enable("ca")
        self.host.install_admin_certificate()
        self.host.join("scheduler")
        self.host.add_variables("scheduler", *SETTINGS_OF_SCHEDULER)
        self.host.enable("scheduler")
        self.host.join_agent()
        self.host.add_variables("agent", *SETTINGS_OF_AGENT)
        self.host.enable("agent")

    def close(self) -> None:
        self.terminal.close()
        self.host.close()
        for node in (self.node_id, self.other_id):
            remove_all_of(node)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory per version with all packages."""
    place = tmp_path_factory.mktemp("packages")
    for version in (OLD, NEW):
        build_debs(place / version, version)
    return place


@pytest.fixture
def administrator(tmp_path: Path, demo_image: str, packages: Path) -> Iterator[Administrator]:
    created = Administrator(tmp_path, demo_image)
    try:
        docker("cp", str(packages), f"{created.node_id}:{HOME}/packages")
        binary = f"{created.node_id}:/usr/local/bin/docker-compose"
        docker("cp", "--follow-link", compose_binaries.V2, binary)
        yield created
    finally:
        print(created.terminal.transcript)
        created.close()


def test_the_first_hour_from_the_debian_packages(
    administrator: Administrator, capsys: pytest.CaptureFixture[str]
) -> None:
    user = administrator
    started_at = time.monotonic()
    user.type(f"{INSTALL} ./packages/{OLD}/*.deb", within=INSTALL_SECONDS)
    user.set_up()
    steps.deploy_a_container(user)
    seconds = time.monotonic() - started_at
    with capsys.disabled():
        print(f"\nDebian packages: {seconds:.0f} s from nothing to the first own workload")

    steps.deploy_a_compose_file(user)
    steps.break_and_find_out_why(user)
    steps.roll_back(user)
    settings = " ".join(SETTINGS_OF_AGENT)
    user.type(f"export {settings}")
    scheduler = "127.0.0.1:8085"
    steps.start_another_node(user, user.other_id, directory=f"{HOME}/other", scheduler=scheduler)
    steps.lose_a_node(user, user.other_id)
    steps.upgrade(user, f"{INSTALL} ./packages/{NEW}/*.deb", old=OLD, new=NEW)
