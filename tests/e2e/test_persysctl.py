"""persysctl as a person or a script uses it, against a real cluster."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster import BIN, Cluster
from e2e.process import free_port

SPEC = """\
id: {name}
type: container
resources: {{cpu_millicores: {cpu}, memory_mb: 16}}
container:
  image: {image}
  command: [sleep, "3600"]
  init: true
  image_pull_policy: Never
  ports: [{{host_port: {port}, container_port: 80}}]
"""


@pytest.fixture
def persysctl(cluster: Cluster, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
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
def spec_file(tmp_path: Path, demo_image: str) -> Callable[..., str]:
    def write(name: str, *, image: str = demo_image, cpu: int = 50, port: int = 0) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(SPEC.format(name=name, image=image, cpu=cpu, port=port))
        return str(path)

    return write


def test_apply_and_wait_ends_well_and_shows_the_port_and_delete_leaves_nothing(
    cluster: Cluster,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    spec_file: Callable[..., str],
    unique_id: str,
) -> None:
    port = free_port()

    applied = persysctl("workload", "apply", "-f", spec_file(unique_id, port=port), "--wait")
    assert applied.returncode == 0, applied.stderr
    assert "Running" in applied.stdout
    assert str(port) in applied.stdout
    assert cluster.container(unique_id).running

    deleted = persysctl("workload", "delete", unique_id, "--wait")
    assert deleted.returncode == 0, deleted.stderr
    assert not cluster.knows(unique_id)
    assert cluster.containers([unique_id]) == []


def test_a_failing_image_ends_with_1_and_the_reason(
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    spec_file: Callable[..., str],
    unique_id: str,
) -> None:
    path = spec_file(unique_id, image="persys-absent:latest")

    failed = persysctl("workload", "apply", "-f", path, "--wait")

    assert failed.returncode == 1
    assert "persys-absent" in failed.stdout + failed.stderr


def test_promise_7_what_fits_nowhere_ends_with_3_and_says_why(
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    spec_file: Callable[..., str],
    unique_id: str,
) -> None:
    path = spec_file(unique_id, cpu=1_000_000)

    waited = persysctl("workload", "apply", "-f", path, "--wait=1s")

    assert waited.returncode == 3
    assert "cpu" in waited.stdout + waited.stderr


def test_a_scheduler_that_is_away_ends_with_4(
    cluster: Cluster, persysctl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    cluster.scheduler.kill()
    try:
        away = persysctl("workload", "list", "--timeout", "1s")
    finally:
        cluster.scheduler.start()

    assert away.returncode == 4
    assert persysctl("workload", "list").returncode == 0
