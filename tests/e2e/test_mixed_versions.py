"""This version and the previous one in one cluster, and the way back to the previous one.

The previous version is a wheel that is built from the history and installed beside the current one.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from uuid import uuid4

import pytest

import compose_binaries
from e2e.cluster import BIN, Cluster
from e2e.containers import Container, docker
from e2e.earlier_versions import install_wheel_of, previous_version
from e2e.etcd import Etcd
from e2e.gateways import Gateway
from e2e.waiting import eventually

# The version is taken from the history, which a shallow clone lacks.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

SPECS = """\
id: {mark}-plain
type: container
resources: {{cpu_millicores: 30, memory_mb: 16}}
container:
  image: {image}
  init: true
  image_pull_policy: Never
  command: [sh, -c, "echo started; exec sleep 3600"]
  env: {{COLOUR: {colour}, PASSWORD: "secret://{mark}"}}
---
id: {mark}-stack
type: compose
compose:
  source_type: inline
  inline_yaml: |
    services:
      web:
        image: {image}
        init: true
        command: [sh, -c, "exec sleep 3600"]
        environment: {{COLOUR: {colour}}}
        volumes: ["site:/site"]
    volumes:
      site:
"""
PARTS = ("scheduler", "gateway", "agent")


class MixedCluster:
    """`path` is the value of PYTHONPATH for a version; "" is the current one."""

    def __init__(self, directory: Path, path: str, store: Mapping[str, str]) -> None:
        often = {"SCHEDULER_RECONCILE_INTERVAL": "1s", "SCHEDULER_DRIFT_DETECT_INTERVAL": "1s"}
        self.cluster = Cluster(
            directory,
            scheduler={**often, **store},
            agent={
                "PERSYS_RECONCILE_INTERVAL": "1s",
                "PERSYS_COMPOSE_ENABLED": "true",
                "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
                "PERSYS_VM_ENABLED": "false",
                "PERSYS_STOP_GRACE": "1s",
            },
        )
        self.gateway = Gateway(directory, {"default": self.cluster.target})
        self._processes = {
            "scheduler": self.cluster.scheduler,
            "gateway": self.gateway.process,
            "agent": self.cluster.agent,
        }
        self.mark = f"m{uuid4().hex[:6]}"
        self.names = [f"{self.mark}-plain", f"{self.mark}-stack"]
        self._specs = directory / "specs.yaml"
        self._value = directory / "value"
        self._value.write_text("hunter2")
        for part in PARTS:
            self._processes[part].set("PYTHONPATH", path)

    def start(self) -> None:
        self.cluster.start()
        self.gateway.process.start()

    def close(self) -> None:
        self.gateway.process.close()
        self.cluster.close()
        mine = f"label=persys.node_id={self.cluster.node_id}"
        if left := docker("volume", "ls", "-q", f"--filter={mine}").split():
            docker("volume", "rm", *left)

    def switch(self, part: str, path: str) -> None:
        process = self._processes[part]
        assert process.stop() == 0
        process.set("PYTHONPATH", path)
        process.start()

    def persysctl(self, path: str, *words: str) -> str:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": "/nonexistent",
            "PERSYS_INSECURE": "true",
            "PYTHONPATH": path,
        }
        result = subprocess.run(
            [BIN / "persysctl", "--scheduler", self.cluster.target, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    # What users do, with persysctl of the version in `path`.

    def apply(self, path: str, image: str, *, colour: str) -> None:
        self._specs.write_text(SPECS.format(mark=self.mark, image=image, colour=colour))
        self.persysctl(path, "apply", "-f", str(self._specs), "--wait", "--timeout", "200s")

    def put_secret(self, path: str) -> None:
        self.persysctl(path, "secret", "put", self.mark, "--from-file", str(self._value))

    def delete(self, path: str) -> None:
        for name in self.names:
            self.persysctl(path, "workload", "delete", name, "--wait", "--timeout", "200s")
        assert self.cluster.containers() == []

    def check(self, path: str, expected: Sequence[Container] | None = None) -> list[Container]:
        """Node, workloads, logs and exec work, directly and through the gateway."""
        self.cluster.wait_until_node_is("Ready")
        self.cluster.wait_for_all(self.names, "Running")
        running = dict.fromkeys(self.names, "Running")
        eventually(lambda: self._statuses_by_gateway() == running, "the gateway shows it")
        plain = self.names[0]
        assert plain in self.persysctl(path, "workload", "list")
        assert self.cluster.node_id in self.persysctl(path, "node", "list", "-o", "wide")
        assert "started" in self.persysctl(path, "logs", plain)
        assert self.persysctl(path, "exec", plain, "--", "echo", "hello").strip() == "hello"
        found = self.cluster.containers()
        assert [one.workload_id for one in found] == self.names
        assert "PASSWORD=hunter2" in self.cluster.container(plain).env
        assert expected is None or found == list(expected)
        return found

    def _statuses_by_gateway(self) -> dict[str, str]:
        """Empty while the gateway is not connected to a scheduler that was just started."""
        try:
            with urllib.request.urlopen(f"{self.gateway.address}/workloads", timeout=30) as answer:
                listed = json.load(answer)["workloads"]
        except urllib.error.HTTPError as err:
            if err.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return {}
            raise
        return {one["workload_id"]: one["status"] for one in listed}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH of the previous version."""
    return str(install_wheel_of(previous_version(), tmp_path_factory.mktemp("previous")))


@pytest.fixture(params=["sqlite", "etcd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mapping[str, str]]:
    if request.param == "sqlite":
        yield {}
        return
    (directory := tmp_path / "etcd").mkdir()
    server = Etcd(directory)
    try:
        server.start()
        yield {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": server.endpoint}
    finally:
        server.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (made := tmp_path / "cluster").mkdir()
    return made


def test_an_upgrade_and_a_downgrade_by_one_version_restart_nothing(
    previous: str, directory: Path, store: Mapping[str, str], demo_image: str
) -> None:
    mixed = MixedCluster(directory, previous, store)
    try:
        mixed.start()
        mixed.put_secret(previous)
        mixed.apply(previous, demo_image, colour="blue")
        before = mixed.check(previous)

        for part in PARTS:
            mixed.switch(part, "")
            mixed.check("", before)
        for part in reversed(PARTS):
            mixed.switch(part, previous)
            mixed.check(previous, before)

        mixed.apply(previous, demo_image, colour="green")
        changed = mixed.check(previous)
        assert {one.id for one in changed}.isdisjoint(one.id for one in before)
        mixed.delete(previous)
    finally:
        mixed.close()


@pytest.mark.parametrize("new", ["scheduler", "others"])
def test_a_scheduler_works_with_the_other_version_of_everything_else(
    new: str, previous: str, directory: Path, demo_image: str
) -> None:
    """One is new, and agent, gateway and persysctl are old; or the reverse."""
    scheduler, others = ("", previous) if new == "scheduler" else (previous, "")
    mixed = MixedCluster(directory, others, {})
    mixed.cluster.scheduler.set("PYTHONPATH", scheduler)
    try:
        mixed.start()
        mixed.put_secret(others)
        mixed.apply(others, demo_image, colour="blue")
        before = mixed.check(others)

        mixed.apply(others, demo_image, colour="blue")
        mixed.check(others, before)
        mixed.apply(others, demo_image, colour="green")
        changed = mixed.check(others)

        assert {one.id for one in changed}.isdisjoint(one.id for one in before)
        mixed.persysctl(others, "workload", "stop", mixed.names[0], "--wait", "--timeout", "200s")
        mixed.persysctl(others, "workload", "start", mixed.names[0], "--wait", "--timeout", "200s")
        mixed.check(others)
        mixed.delete(others)
    finally:
        mixed.close()
