"""The programs of examples/sdk, on a cluster with two nodes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, a_container
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "sdk"
SPEC = """\
id: {id}
resources: {{cpu_millicores: 30, memory_mb: 16}}
container:
  image: {image}
  init: true
  restart_policy: "no"
  command: [sh, -c, "{command}"]
"""
SETS_AND_JOBS = """\
id: {id}
replicas: 2
update: {{min_healthy: 1s}}
resources: {{cpu_millicores: 20, memory_mb: 16}}
container: {{image: {image}, init: true, command: [sleep, "3600"]}}
---
kind: job
id: {id}-job
resources: {{cpu_millicores: 20, memory_mb: 16}}
container: {{image: {image}, command: [echo, done]}}
"""
Example = Callable[..., subprocess.CompletedProcess[str]]
SpecFile = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {"agent": {"PERSYS_STOP_GRACE": "1s"}}


@pytest.fixture
def environment(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PERSYS_GRPC_ENDPOINT": cluster.target,
        "PERSYS_INSECURE": "true",
    }


@pytest.fixture
def run_example(environment: dict[str, str]) -> Example:
    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, EXAMPLES / name, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def spec_file(unique_id: str, demo_image: str, tmp_path: Path) -> SpecFile:
    """Creates a spec file with the workload `unique_id` and this command. Returns its path."""

    def create(command: str) -> str:
        path = tmp_path / "spec.yaml"
        path.write_text(SPEC.format(id=unique_id, image=demo_image, command=command))
        return str(path)

    return create


@pytest.fixture
def watch(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """The output of watch_events.py, which is interrupted after the test."""
    output = tmp_path / "events"
    with output.open("wb") as file:
        started = subprocess.Popen(
            [sys.executable, EXAMPLES / "watch_events.py"], env=environment, stdout=file
        )
    yield output
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 0


def test_apply_and_wait_returns_when_the_workload_runs(
    cluster: Cluster, run_example: Example, spec_file: SpecFile, unique_id: str
) -> None:
    done = run_example("apply_and_wait.py", spec_file("exec sleep 3600"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{unique_id}: Running"
    assert cluster.container(unique_id).running


def test_apply_and_wait_reports_a_failure(
    run_example: Example, spec_file: SpecFile, unique_id: str
) -> None:
    done = run_example("apply_and_wait.py", spec_file("exit 3"))

    assert done.returncode == 1
    assert f"{unique_id}: Failed" in done.stdout
    assert "exited with code 3" in done.stdout


@pytest.mark.parametrize(
    ("command", "code", "result"),
    [
        ("echo tested", 0, "Completed"),
        ("echo tested; exit 2", 1, "Failed: exited with code 2"),
    ],
)
def test_run_job_prints_the_log_and_the_result_and_deletes_the_job(
    cluster: Cluster,
    run_example: Example,
    spec_file: SpecFile,
    unique_id: str,
    command: str,
    code: int,
    result: str,
) -> None:
    done = run_example("run_job.py", spec_file(command))

    assert (done.returncode, done.stdout) == (code, f"tested\n{unique_id}: {result}\n"), done.stderr
    assert not cluster.knows(unique_id)


def test_roll_out_waits_for_sets_and_jobs(
    cluster: Cluster, run_example: Example, demo_image: str, unique_id: str, tmp_path: Path
) -> None:
    path = tmp_path / "set.yaml"
    path.write_text(SETS_AND_JOBS.format(id=unique_id, image=demo_image))

    done = run_example("roll_out.py", str(path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{unique_id}: rolled out (revision 1, 2 of 2 healthy)" in done.stdout
    assert f"  {unique_id}-1 on {cluster.node_id}: healthy" in done.stdout
    assert f"{unique_id}-job-" in done.stdout
    assert done.stdout.endswith("succeeded\n")
    cluster.client.delete_set(unique_id)
    cluster.client.delete_job(f"{unique_id}-job")
    eventually(
        lambda: not [name for name in cluster.statuses() if name.startswith(unique_id)],
        "all members are deleted",
        within=120,
    )


@pytest.mark.full
def test_watch_events_continues_after_a_restart_of_the_scheduler(
    cluster: Cluster, watch: Path, sleeper: pb.WorkloadSpec, names: Callable[[int], list[str]]
) -> None:
    first, later = names(2)
    # The watch may begin after an apply: apply until it shows one.
    eventually(
        lambda: _applied_and_shown(cluster, watch, first, sleeper), lambda: watch.read_text()
    )

    cluster.scheduler.kill()
    cluster.scheduler.start()
    cluster.apply(later, sleeper)

    eventually(lambda: f"WorkloadCreated {later}" in watch.read_text(), lambda: watch.read_text())
    lines = watch.read_text().splitlines()
    assert len(set(lines)) == len(lines), "an event is shown once"
    cluster.delete_all([first, later])
    cluster.wait_until_gone([first, later])


@pytest.mark.full
def test_drain_node_moves_what_has_no_data_and_reports_the_rest(
    cluster: Cluster, run_example: Example, demo_image: str, names: Callable[[int], list[str]]
) -> None:
    free, data = names(2)
    spec = a_container(demo_image, "sleep", "3600")
    cluster.run_all([free], spec)
    spec.container.managed_volumes.add(name="data", mount_path="/data")
    cluster.run_all([data], spec)
    other = cluster.add_node()

    blocked = run_example("drain_node.py", cluster.node_id)

    assert blocked.returncode == 1
    assert f"{data} stays: " in blocked.stderr
    eventually(
        lambda: cluster.client.get_workload(free).assigned_node_id == other, "the other one moves"
    )
    cluster.delete_all([data])
    cluster.wait_until_gone([data])

    done = run_example("drain_node.py", cluster.node_id)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{cluster.node_id}: drained"
    cluster.client.uncordon(cluster.node_id)


def _applied_and_shown(
    cluster: Cluster, watch: Path, workload_id: str, spec: pb.WorkloadSpec
) -> bool:
    cluster.client.apply(pb.ApplyWorkloadRequest(workload_id=workload_id, spec=spec))
    return workload_id in watch.read_text()
