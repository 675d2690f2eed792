"""Jobs on real Docker. Starts are observed in Docker, not in the records of the scheduler."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

Persysctl = Callable[..., subprocess.CompletedProcess[str]]

OCCURRENCE_SECONDS = 180  # until the next minute, on a busy host
# In the sequence of one occurrence: its run, its attempts and their workloads are stored.
STEPS = ("job-run-started", "job-run-stored", "job-members-changed")


@pytest.fixture
def starts(cluster: Cluster) -> Iterator[list[str]]:
    """The workload id of each container that Docker starts on the node."""
    found: list[str] = []
    events = subprocess.Popen(
        [
            *("docker", "events", "--format", "{{json .}}", "--filter", "event=start"),
            *("--filter", f"label=persys.node_id={cluster.node_id}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )

    def read() -> None:
        assert events.stdout is not None
        for line in events.stdout:
            found.append(json.loads(line)["Actor"]["Attributes"]["persys.workload_id"])

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    yield found
    events.terminate()
    events.wait(timeout=30)
    reader.join(timeout=30)
    assert events.stdout is not None
    events.stdout.close()


@pytest.fixture
def apply(
    cluster: Cluster, persysctl: Persysctl, unique_id: str, demo_image: str, tmp_path: Path
) -> Iterator[Callable[..., None]]:
    """Applies a job with the id of the test. It is deleted afterwards."""

    def applied(command: str, **job: object) -> None:
        document = {
            "id": unique_id,
            **job,
            "resources": {"cpu_millicores": 20, "memory_mb": 16},
            "container": {"image": demo_image, "init": True, "command": ["sh", "-c", command]},
        }
        path = tmp_path / "job.yaml"
        path.write_text(json.dumps(document))
        done = persysctl("apply", "-f", str(path))
        assert done.returncode == 0, done.stderr + done.stdout

    yield applied
    cluster.scheduler.set("PERSYS_FAILPOINT", "")
    if not cluster.scheduler.runs:
        cluster.scheduler.start()
    persysctl("delete", unique_id)
    eventually(
        lambda: not any(name.startswith(unique_id) for name in cluster.statuses()),
        "the members are deleted",
        within=120,
    )


def runs_of(cluster: Cluster, job_id: str) -> list[pb.RunView]:
    return list(cluster.client.get_job(job_id).runs)


def test_promise_16_an_occurrence_runs_once_although_the_scheduler_is_killed_at_each_step(
    cluster: Cluster, apply: Callable[..., None], starts: list[str], unique_id: str
) -> None:
    apply(
        'echo "part $PERSYS_INDEX"; sleep 5',
        schedule={"cron": "* * * * *", "overlap": "allow"},
        job={"completions": 2, "parallelism": 2},
    )

    for step in STEPS:
        if cluster.scheduler.runs:
            cluster.scheduler.kill()
        cluster.scheduler.set("PERSYS_FAILPOINT", step)
        cluster.scheduler.launch()
        eventually(
            lambda: not cluster.scheduler.runs, f"killed at {step}", within=OCCURRENCE_SECONDS
        )
    cluster.scheduler.set("PERSYS_FAILPOINT", "")
    cluster.scheduler.start()
    cluster.client.suspend_job(unique_id)
    eventually(
        lambda: all(run.state == "Succeeded" for run in runs_of(cluster, unique_id)),
        lambda: f"all runs succeed: {runs_of(cluster, unique_id)}",
        within=120,
    )

    runs = runs_of(cluster, unique_id)
    assert runs
    assert len({run.scheduled_at.seconds for run in runs}) == len(runs)
    wanted = {f"{run.run_id}-{index}": 1 for run in runs for index in range(2)}
    eventually(lambda: len(starts) >= len(wanted), "all starts are reported")
    assert Counter(starts) == wanted


def test_a_failed_member_is_run_again_and_the_exit_code_decides(
    cluster: Cluster,
    persysctl: Persysctl,
    apply: Callable[..., None],
    starts: list[str],
    unique_id: str,
) -> None:
    apply("exit 3", job={"retries": 1})

    done = persysctl("job", "run", unique_id, "--wait", "120s")

    assert done.returncode == 1
    (run,) = runs_of(cluster, unique_id)
    assert (run.state, sorted(starts)) == ("Failed", [f"{run.run_id}-0", f"{run.run_id}-1"])

    apply("exit 3", job={"retries": 1, "fail_on": [3]})
    assert persysctl("job", "run", unique_id, "--wait", "120s").returncode == 1
    second = next(one for one in runs_of(cluster, unique_id) if one.run_id != run.run_id)
    assert "fail_on" in second.reason
    assert [name for name in starts if name.startswith(second.run_id)] == [f"{second.run_id}-0"]
