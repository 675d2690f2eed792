"""persysctl with a real cluster."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import compose_binaries
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


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    compose = {
        "PERSYS_COMPOSE_ENABLED": "true",
        "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
        "PERSYS_STOP_GRACE": "1s",
    }
    return {"agent": compose}


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


def test_a_file_is_applied_updated_and_applied_again_from_the_output_of_get(
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    spec_file: Callable[..., str],
    tmp_path: Path,
    unique_id: str,
) -> None:
    path = spec_file(unique_id)
    shown = tmp_path / "shown.yaml"

    created = persysctl("apply", "-f", path)
    updated = persysctl("apply", "-f", path, "--set", "container.env.DB_PASSWORD=x", "--wait")
    shown.write_text(persysctl("workload", "get", unique_id, "-o", "yaml").stdout)
    again = persysctl("apply", "-f", str(shown))
    refused = persysctl("apply", "-f", path, "--set", "container.env.A=secret://no-such")
    deleted = persysctl("workload", "delete", "-f", path, "--wait")

    assert created.stdout == f"{unique_id}: created\n", created.stderr
    assert f"{unique_id}: updated\n    + container.env.DB_PASSWORD  ********\n" in updated.stdout
    assert updated.returncode == 0, updated.stderr
    assert f"next: show its output with `persysctl logs {unique_id}`" in updated.stderr
    assert again.stdout == f"{unique_id}: unchanged\n", again.stderr
    assert refused.returncode == 2
    assert "--set container.env.A=secret://no-such: " in refused.stderr
    assert deleted.returncode == 0, deleted.stderr


def test_a_compose_file_is_applied_as_a_stack_and_again_from_the_output_of_get(
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    demo_image: str,
    tmp_path: Path,
    unique_id: str,
) -> None:
    path = tmp_path / "docker-compose.yml"
    path.write_text(
        f"name: {unique_id}\nservices:\n  web:\n    image: ${{IMAGE}}\n"
        "    pull_policy: never\n    command: sleep 3600\n    init: true\n"
    )
    (tmp_path / "vars").write_text(f"IMAGE={demo_image}\n")
    shown = tmp_path / "shown.yaml"
    words = ("-f", str(path), "--env-file", str(tmp_path / "vars"))

    unset = persysctl("apply", "-f", str(path), "--interpolate")
    applied = persysctl("apply", *words, "--wait")
    shown.write_text(persysctl("workload", "get", unique_id, "-o", "yaml").stdout)
    again = persysctl("apply", "-f", str(shown))
    deleted = persysctl("workload", "delete", *words, "--wait")

    assert unset.returncode == 2
    assert f"{path}:4:12: IMAGE: " in unset.stderr
    assert f"{path}: Compose file, applied as stack '{unique_id}'\n" in applied.stdout
    assert applied.returncode == 0, applied.stderr
    assert f"{unique_id}: Running" in applied.stdout
    assert again.stdout == f"{unique_id}: unchanged\n", again.stderr
    assert deleted.returncode == 0, deleted.stderr


def test_run_restart_edit_and_rm_work_as_in_docker(
    cluster: Cluster,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    demo_image: str,
    unique_id: str,
) -> None:
    def succeeds(*words: str, **variables: str) -> str:
        done = persysctl(*words, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    options = ("--pull", "never", "--memory", "16m", "--cpu", "50m", "--wait")
    command = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done")
    succeeds("run", unique_id, "--image", demo_image, *options, "--", *command)
    assert unique_id in succeeds("ps", "-q").splitlines()
    before = cluster.container(unique_id)

    succeeds("restart", unique_id, "--wait")
    after = cluster.container(unique_id)
    assert (after.id, after.running) == (before.id, True)
    assert after.started_at != before.started_at

    editor = "sed -i 's/memory_mb: 16/memory_mb: 24/'"
    edited = succeeds("edit", unique_id, "--yes", "--wait", EDITOR=editor)
    assert "resources.memory_mb  16 -> 24" in edited

    assert f"{unique_id}: would be deleted" in succeeds("rm", "-f", unique_id, "--dry-run")
    succeeds("rm", "-f", unique_id, "--wait")
    assert not cluster.knows(unique_id)


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
        checked = persysctl("doctor", "-o", "json")
    finally:
        cluster.scheduler.start()

    assert unreachable.returncode == 4
    assert checked.returncode == 1
    assert "systemctl start persys-scheduler" in checked.stdout
    assert persysctl("workload", "list").returncode == 0
