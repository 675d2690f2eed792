"""persysctl with a real cluster."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster import Cluster
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
def spec_file(tmp_path: Path, demo_image: str) -> Callable[..., str]:
    def write(name: str, *, image: str = demo_image, cpu: int = 50, port: int = 0) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(SPEC.format(name=name, image=image, cpu=cpu, port=port))
        return str(path)

    return write


def test_apply_with_wait_shows_the_port_and_delete_removes_everything(
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


def test_a_missing_image_exits_with_1_and_the_reason(
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    spec_file: Callable[..., str],
    unique_id: str,
) -> None:
    path = spec_file(unique_id, image="persys-absent:latest")

    failed = persysctl("workload", "apply", "-f", path, "--wait")

    assert failed.returncode == 1
    assert "persys-absent" in failed.stdout + failed.stderr


def test_promise_7_a_workload_that_fits_nowhere_is_reported_at_once_with_the_reason(
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    spec_file: Callable[..., str],
    unique_id: str,
) -> None:
    path = spec_file(unique_id, cpu=1_000_000)

    waited = persysctl("workload", "apply", "-f", path, "--wait", "10m")

    assert waited.returncode == 1
    assert "cpu" in waited.stderr
    assert f"persysctl explain {unique_id}" in waited.stderr


def test_an_unreachable_scheduler_exits_with_4(
    cluster: Cluster, persysctl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    cluster.scheduler.kill()
    try:
        unreachable = persysctl("workload", "list", "--timeout", "1s")
    finally:
        cluster.scheduler.start()

    assert unreachable.returncode == 4
    assert persysctl("workload", "list").returncode == 0
