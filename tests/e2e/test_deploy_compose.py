"""Our image, and the whole control plane of deploy/compose from it: all but Grafana, which no package has."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import composes
from e2e import images
from e2e.containers import docker
from e2e.process import free_port
from e2e.waiting import eventually

FILE = images.ROOT / "deploy" / "compose" / "compose.yaml"
COREDNS = images.ROOT / ".cache" / "engines" / "coredns"
STARTED = (
    "ca",
    "etcd",
    "scheduler-1",
    "scheduler-2",
    "scheduler-3",
    "gateway",
    "coredns",
    "prometheus",
)
PORTS = (
    "CA",
    "SCHEDULER_1",
    "SCHEDULER_2",
    "SCHEDULER_3",
    "GATEWAY",
    "WEBHOOKS",
    "DNS",
    "PROMETHEUS",
)
_DEADLINE_SECONDS = 150


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return images.build_persys(tmp_path_factory.mktemp("context"))


class Stack:
    def __init__(self, images_by_name: dict[str, str]) -> None:
        self.ports = {name: free_port() for name in PORTS}
        self._project = f"persys-{uuid4().hex[:8]}"
        self._env = {
            "PATH": os.environ["PATH"],
            **{f"IMAGE_{name}": image for name, image in images_by_name.items()},
            **{f"PORT_{name}": str(port) for name, port in self.ports.items()},
        }

    def compose(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*composes.V2.split(), "-p", self._project, "-f", str(FILE), *words],
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
        )

    def persysctl(self, *words: str) -> str:
        done = self.compose("run", "--rm", "--no-deps", "-T", "persysctl", *words)
        return done.stdout if done.returncode == 0 else ""

    def inside(self, service: str, script: str) -> str:
        return self.compose("exec", "-T", service, "python3", "-c", script).stdout


@pytest.fixture(scope="module")
def stack(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    prometheus = shutil.which("prometheus")
    assert prometheus is not None, "the tests need prometheus"
    place = tmp_path_factory.mktemp("programs")
    made = Stack(
        {
            "PERSYS": image,
            "ETCD": images.build_etcd(),
            "COREDNS": images.build_program(images.COREDNS, COREDNS, place / "coredns"),
            "PROMETHEUS": images.build_program(
                images.PROMETHEUS, Path(prometheus), place / "prometheus"
            ),
        }
    )
    try:
        up = made.compose("up", "-d", "--no-build", *STARTED)
        assert up.returncode == 0, up.stderr + made.compose("logs").stdout[-6000:]
        yield made
    finally:
        made.compose("--profile", "tools", "down", "-v", "--timeout", "5")


def test_the_image_has_every_program(image: str) -> None:
    for program in ("persys-scheduler", "persys-agent", "persys-ca", "persys-gateway"):
        assert "log_level = " in docker("run", "--rm", image, program, "--print-config")
    assert "usage: persysctl" in docker("run", "--rm", image)


def test_the_compose_file_is_understood(stack: Stack) -> None:
    config = stack.compose("--profile", "tools", "config", "--format", "json")

    assert config.returncode == 0, config.stderr
    services = json.loads(config.stdout)["services"]
    assert services.keys() == {*STARTED, "certificates", "grafana", "persysctl"}


def test_three_schedulers_stand_on_one_etcd_and_one_leads(stack: Stack) -> None:
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8084/health').read().decode())"

    def roles() -> list[str]:
        answers = [stack.inside(f"scheduler-{number}", ask) for number in (1, 2, 3)]
        return sorted(json.loads(answer)["role"] if answer else "" for answer in answers)

    eventually(lambda: roles() == ["leader", "standby", "standby"], lambda: f"{roles()}")
    assert "normal" in stack.persysctl("recovery", "status")


def test_the_gateway_finds_the_schedulers(stack: Stack) -> None:
    ask = (
        "import ssl, urllib.request as r; c = ssl._create_unverified_context();"
        "print(r.urlopen('https://127.0.0.1:8551/health', context=c).status)"
    )
    eventually(
        lambda: stack.inside("gateway", ask).strip() == "200",
        lambda: stack.compose("logs", "gateway").stdout[-3000:],
        within=30,
    )


def test_coredns_answers_with_the_schedulers(stack: Stack) -> None:
    def found() -> str:
        name = "_persys-scheduler._tcp.persys.local"
        words = [
            "dig",
            "+short",
            "+time=2",
            "@127.0.0.1",
            "-p",
            str(stack.ports["DNS"]),
            "SRV",
            name,
        ]
        return subprocess.run(words, capture_output=True, text=True, timeout=20, check=False).stdout

    eventually(lambda: found().count("8085") == 3, found, within=30)
