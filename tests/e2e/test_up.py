"""`persys up`, `down` and `clean-demo`."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import urllib.request
import uuid
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from e2e.waiting import eventually
from persys.cli.local.supervise import Status, read_status

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Installation:
    """An installation with its own names, ports and files."""

    state_dir: Path
    scheduler_port: int
    agent_port: int
    gateway_port: int
    demo_port: int
    options: tuple[str, ...]
    env: dict[str, str]
    programs: Path = BIN

    def persys(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("persys", *arguments)

    def persysctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("persysctl", *arguments)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.persys("up", f"--state-dir={self.state_dir}", *self.options)

    def down(self) -> subprocess.CompletedProcess[str]:
        return self.persys("down", f"--state-dir={self.state_dir}")

    def clean(self) -> subprocess.CompletedProcess[str]:
        return self.persys(
            "clean-demo",
            f"--state-dir={self.state_dir}",
            f"--scheduler-port={self.scheduler_port}",
        )

    def processes(self) -> dict[str, Status]:
        names = ("ca", "scheduler", "agent", "gateway")
        return {name: read_status(self.state_dir / f"{name}.status") for name in names}

    def page(self) -> str:
        url = f"http://127.0.0.1:{self.demo_port}/"
        with urllib.request.urlopen(url, timeout=10) as response:
            text: str = response.read().decode()
            return text

    def container(self) -> str:
        """The running container of the demo: its id and start time."""
        listed = subprocess.run(
            [
                "docker",
                "ps",
                "-q",
                "--filter",
                f"label=persys.node_id={self.env['PERSYS_NODE_ID']}",
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.split()
        if not listed:
            return ""
        assert len(listed) == 1
        inspected = ["docker", "inspect", "-f", "{{.Id}} {{.State.StartedAt}}", *listed]
        return subprocess.run(
            inspected, capture_output=True, text=True, timeout=30, check=True
        ).stdout.strip()

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.programs / program, *arguments],
            env=self.env,
            cwd=self.state_dir.parent,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with an_installation(tmp_path) as created:
        yield created


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """For tests that do not need the first `up`. Each begins with `up`, which starts what is missing."""
    with an_installation(tmp_path_factory.mktemp("shared")) as created:
        yield created


@contextmanager
def an_installation(place: Path) -> Iterator[Installation]:
    ports = _free_ports(8)
    ca_port, scheduler_port, scheduler_metrics, agent_port, agent_metrics = ports[:5]
    gateway_port, public_port, demo_port = ports[5:]
    options = (
        f"--ca-port={ca_port}",
        f"--scheduler-port={scheduler_port}",
        f"--scheduler-metrics-port={scheduler_metrics}",
        f"--agent-port={agent_port}",
        f"--agent-metrics-port={agent_metrics}",
        f"--gateway-port={gateway_port}",
        f"--gateway-public-port={public_port}",
        f"--demo-port={demo_port}",
    )
    env = {
        **{name: value for name, value in os.environ.items() if name != "PERSYS_INSECURE"},
        "PERSYS_NODE_ID": f"up-{uuid.uuid4().hex[:8]}",
        "HOME": str(place / "home"),
    }
    created = Installation(
        place / "up", scheduler_port, agent_port, gateway_port, demo_port, options, env
    )
    try:
        yield created
    finally:
        created.clean()
        created.down()


def test_up_runs_a_workload_and_is_idempotent(installation: Installation) -> None:
    first = installation.up()

    assert first.returncode == 0, first.stdout + first.stderr
    assert "It runs" in installation.page()
    assert "Running" in installation.persysctl("workload", "get", "hello").stdout
    before = installation.container()

    again = installation.up()

    assert again.returncode == 0, again.stdout + again.stderr
    assert installation.container() == before
    assert "certificate for" in first.stdout
    assert "certificate for" not in again.stdout
    result = installation.persysctl(
        "--api", f"https://127.0.0.1:{installation.gateway_port}", "workload", "list"
    )
    assert "hello" in result.stdout, result.stderr
    plain = installation.persysctl("node", "list", "--insecure")
    assert plain.returncode == 4
    assert "requires TLS" in plain.stderr
    agent = installation.persysctl(
        "agent", "health", "--agent", f"127.0.0.1:{installation.agent_port}"
    )
    assert agent.returncode == 0, agent.stderr


def test_down_keeps_the_workload_running(shared: Installation) -> None:
    shared.up()
    before = shared.container()

    down = shared.down()

    assert down.returncode == 0, down.stdout + down.stderr
    assert "workload hello" in down.stdout
    assert "It runs" in shared.page()
    assert shared.container() == before
    assert shared.persysctl("node", "list").returncode == 4

    # As left by an older version, or after the loss of the CA.
    for folder in ("ca", "certs"):
        shutil.rmtree(shared.state_dir / folder)
    up = shared.up()

    assert up.returncode == 0, up.stdout + up.stderr
    assert shared.container() == before
    assert shared.persysctl("node", "list").returncode == 0


def test_clean_demo_removes_the_workload_of_up(shared: Installation) -> None:
    shared.up()

    clean = shared.clean()

    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert shared.container() == ""
    assert shared.persysctl("workload", "list", "-o", "name").stdout == ""


def test_a_killed_scheduler_is_restarted_within_seconds(shared: Installation) -> None:
    shared.up()
    before = shared.processes()

    os.kill(before["scheduler"].pid, signal.SIGKILL)

    eventually(
        lambda: shared.processes()["scheduler"].pid not in (0, before["scheduler"].pid),
        "the scheduler runs again",
    )
    eventually(
        lambda: shared.persysctl("workload", "list").returncode == 0, "the scheduler answers"
    )
    status = shared.persys("status", f"--state-dir={shared.state_dir}")
    assert status.returncode == 0, status.stdout
    assert "killed by SIGKILL" in status.stdout
    assert shared.processes()["agent"] == before["agent"]


def test_up_works_from_an_installed_wheel(installation: Installation, tmp_path: Path) -> None:
    installed = replace(installation, programs=_installed_wheel(tmp_path))

    up = installed.up()

    assert up.returncode == 0, up.stdout + up.stderr
    assert "It runs" in installation.page()
    assert installed.persysctl("apply", "-f", "nowhere.yaml").returncode == 2


def _installed_wheel(place: Path) -> Path:
    """A new virtual environment with the wheel of this project. Only the dependencies are shared."""
    project = Path(__file__).parents[2]
    wheels, environment = place / "wheels", place / "elsewhere"
    build = [project / "scripts" / "wheel", wheels]
    subprocess.run(build, stdout=subprocess.DEVNULL, timeout=240, check=True)
    venv.create(environment, with_pip=False)
    (site,) = (environment / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    (wheel,) = wheels.iterdir()
    python = environment / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run(install, timeout=240, check=True)
    return environment / "bin"


def _free_ports(count: int) -> list[int]:
    trials = [socket.socket() for _ in range(count)]
    try:
        for trial in trials:
            trial.bind(("127.0.0.1", 0))
        return [trial.getsockname()[1] for trial in trials]
    finally:
        for trial in trials:
            trial.close()
