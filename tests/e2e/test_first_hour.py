"""The first hour of a new user, typed into a terminal: install, deploy, break, repair, lose a node, upgrade.

The wheel is installed into a new virtual environment outside the clone. Nothing is downloaded.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import compose_binaries
from e2e import first_hour as steps
from e2e import images
from e2e.containers import remove_all_of
from e2e.first_hour import INSTALL_SECONDS, SHELL, User
from e2e.process import free_port
from e2e.terminal import Terminal

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

OLD, NEW = "1.0.0", "1.0.1"
PORTS_OF_UP = (
    "ca-port",
    "scheduler-port",
    "scheduler-metrics-port",
    "agent-port",
    "agent-metrics-port",
    "gateway-port",
    "gateway-public-port",
    "demo-port",
)
SETTINGS = {
    # A lost node is detected within seconds instead of minutes.
    "SCHEDULER_HEARTBEAT_INTERVAL": "2s",
    "SCHEDULER_NODE_LEASE": "20s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "5s",
    "PERSYS_STOP_GRACE": "1s",
    "PERSYS_VM_ENABLED": "false",
    "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
    **{f"PERSYS_ADMISSION_{name}_PERCENT": "100" for name in ("CPU", "MEMORY", "DISK")},
}


class UserOfWheel(User):
    """Uses `persys up` on this host, with its own ports and directories."""

    def __init__(self, place: Path) -> None:
        self.home = place / "home"
        self.home.mkdir()
        node_id = f"hour-{uuid4().hex[:8]}"
        environment = {
            "HOME": str(self.home),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PERSYS_NODE_ID": node_id,
            **SETTINGS,
        }
        terminal = Terminal(SHELL, environment=environment, directory=self.home)
        super().__init__(terminal, node_id, "persys-demo:latest")
        self.other_id = f"{node_id}-2"
        self._ports = {name: free_port() for name in PORTS_OF_UP}

    @property
    def up(self) -> str:
        ports = " ".join(f"--{name}={port}" for name, port in self._ports.items())
        return f"persys up --state-dir={self.home}/state {ports}"

    @property
    def down(self) -> str:
        return f"persys down --state-dir={self.home}/state"

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def start_another_node(self) -> None:
        scheduler = f"127.0.0.1:{self._ports['scheduler-port']}"
        directory = f"{self.home}/other"
        steps.start_another_node(self, self.other_id, directory=directory, scheduler=scheduler)

    def close(self) -> None:
        self.terminal.run(f"{self.down}; jobs -p | xargs -r kill -9")
        self.terminal.close()
        for node in (self.node_id, self.other_id):
            remove_all_of(node)


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of two versions of Persys and of all dependencies."""
    place = tmp_path_factory.mktemp("wheels")
    scripts = images.ROOT / "scripts"
    subprocess.run([scripts / "wheels"], timeout=INSTALL_SECONDS, check=True)
    for wheel in (images.ROOT / "deploy" / "docker" / "wheels").glob("*.whl"):
        shutil.copy2(wheel, place)
    for version in (OLD, NEW):
        environment = {**os.environ, "VERSION": version}
        build = [scripts / "wheel", place]
        subprocess.run(build, env=environment, timeout=INSTALL_SECONDS, check=True)
    return place


@pytest.fixture
def user_of_wheel(tmp_path: Path) -> Iterator[UserOfWheel]:
    created = UserOfWheel(tmp_path)
    try:
        yield created
    finally:
        print(created.terminal.transcript)
        created.close()


def test_the_first_hour_from_the_wheel(
    user_of_wheel: UserOfWheel,
    wheelhouse: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    user = user_of_wheel
    install = f"persys/bin/pip install --quiet --no-index --find-links {wheelhouse}"
    started_at = time.monotonic()
    user.type("python3 -m venv persys", within=INSTALL_SECONDS)
    user.type(f"{install} persys=={OLD}", within=INSTALL_SECONDS)
    user.type('export PATH="$PWD/persys/bin:$PATH"')
    user.type(user.up, within=INSTALL_SECONDS)
    steps.deploy_a_container(user)
    seconds = time.monotonic() - started_at
    with capsys.disabled():
        print(f"\nwheel: {seconds:.0f} s from nothing to the first own workload")

    _check_types_of_a_program(user)
    steps.deploy_a_compose_file(user)
    steps.deploy_a_stack_from_git(user, tmp_path)
    steps.break_and_find_out_why(user)
    steps.roll_back(user)
    user.start_another_node()
    steps.lose_a_node(user, user.other_id)
    newer = f"{install} --upgrade persys=={NEW}"
    steps.upgrade(user, newer, user.down, user.up, old=OLD, new=NEW)


def _check_types_of_a_program(user: UserOfWheel) -> None:
    """The installed package is typed: mypy accepts the examples and finds an error in a program."""
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=mypy"]
    mypy += ["--python-executable", str(user.home / "persys" / "bin" / "python")]
    wrong = "from persys.sdk import connect\nwith connect() as cluster:\n    cluster.apply(3)\n"
    user.write("wrong.py", wrong)
    examples = sorted(map(str, (images.ROOT / "examples" / "sdk").glob("*.py")))
    for programs, code in ((examples, 0), (["wrong.py"], 1)):
        done = subprocess.run(
            [*mypy, *programs],
            cwd=user.home,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
