"""Sets on real Docker. Health is observed in Docker, not in the records of the scheduler."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import compose_binaries
from e2e.cluster import Cluster
from e2e.healthy_containers import HealthyContainers
from e2e.waiting import eventually

REPLICAS = 6
ROLLOUT_SECONDS = 300

Persysctl = Callable[..., subprocess.CompletedProcess[str]]

CONTAINER = """\
    resources: {cpu_millicores: 20, memory_mb: 16}
    container:
      image: IMAGE
      init: true
      command: [sh, -c, "COMMAND"]
      env: {VERSION: "VERSION_NUMBER"}
      health_check:
        {type: exec, command: [test, -e, /tmp/well], interval_seconds: 1, timeout_seconds: 60, retries: 2}
"""
STACK = """\
    resources: {cpu_millicores: 20, memory_mb: 16}
    compose:
      inline_yaml: |
        services:
          web:
            image: IMAGE
            init: true
            command: ["sh", "-c", "COMMAND"]
            environment: {VERSION: "VERSION_NUMBER", PERSYS_INDEX: "${PERSYS_INDEX}"}
            healthcheck:
              {test: ["CMD", "test", "-e", "/tmp/well"], interval: 1s, timeout: 60s, retries: 2}
"""
WELL = "touch /tmp/well; exec sleep 3600"


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "agent": {
            "PERSYS_COMPOSE_ENABLED": "true",
            "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
            "PERSYS_STOP_GRACE": "1s",
        }
    }


@pytest.fixture
def set_file(
    cluster: Cluster, unique_id: str, persysctl: Persysctl, demo_image: str, tmp_path: Path
) -> Iterator[Callable[..., str]]:
    """Writes the spec file of a set with the id of the test. The set is deleted afterwards."""

    def write(
        spec: str = CONTAINER,
        *,
        version: int = 1,
        command: str = WELL,
        image: str = "",
        **update: str,
    ) -> str:
        policy = {"max_parallel": "2", "min_healthy": "1s", "healthy_deadline": "60s", **update}
        body = (
            dedent(spec)
            .replace("IMAGE", image or demo_image)
            .replace("COMMAND", command)
            .replace("VERSION_NUMBER", str(version))
        )
        path = tmp_path / "set.yaml"
        path.write_text(
            f"id: {unique_id}\nreplicas: {REPLICAS}\nupdate: {json.dumps(policy)}\n{body}"
        )
        return str(path)

    yield write
    persysctl("delete", unique_id)
    eventually(lambda: not members(cluster, unique_id), "the members are deleted", within=120)


def members(cluster: Cluster, set_id: str) -> list[str]:
    return [name for name in cluster.statuses() if name.startswith(f"{set_id}-")]


def environments(cluster: Cluster, set_id: str) -> list[dict[str, str]]:
    """The variables of all running containers of the set."""
    found = cluster.containers(members(cluster, set_id))
    return [dict(one.partition("=")[::2] for one in each.env) for each in found if each.running]


def apply(persysctl: Persysctl, path: str) -> subprocess.CompletedProcess[str]:
    return persysctl("apply", "-f", path, "--wait", f"{ROLLOUT_SECONDS}s")


def deploy(cluster: Cluster, persysctl: Persysctl, path: str, set_id: str) -> None:
    done = apply(persysctl, path)
    assert done.returncode == 0, done.stderr + done.stdout
    indexes = sorted(one["PERSYS_INDEX"] for one in environments(cluster, set_id))
    assert indexes == [str(index) for index in range(REPLICAS)]


@pytest.mark.parametrize(
    ("order", "spec"),
    [
        ("start-first", CONTAINER),
        ("start-first", STACK),
        ("in-place", CONTAINER),
        pytest.param("in-place", STACK, marks=pytest.mark.full),
    ],
    ids=["start-first-containers", "start-first-stacks", "in-place-containers", "in-place-stacks"],
)
def test_promise_14_an_update_keeps_enough_members_healthy(
    cluster: Cluster,
    persysctl: Persysctl,
    set_file: Callable[..., str],
    unique_id: str,
    spec: str,
    order: str,
) -> None:
    deploy(cluster, persysctl, set_file(spec, order=order), unique_id)

    with HealthyContainers(cluster.node_id) as healthy:
        assert healthy.count() == REPLICAS
        deploy(cluster, persysctl, set_file(spec, version=2, order=order), unique_id)

    assert healthy.fewest >= REPLICAS - 2
    assert {one["VERSION"] for one in environments(cluster, unique_id)} == {"2"}


@pytest.mark.parametrize(
    "spec", [CONTAINER, pytest.param(STACK, marks=pytest.mark.full)], ids=["containers", "stacks"]
)
@pytest.mark.parametrize(
    ("change", "update"),
    [
        ({"image": "persys-missing:1"}, {"healthy_deadline": "20s"}),
        ({"command": "exec sleep 3600"}, {"healthy_deadline": "20s"}),
        pytest.param(
            {"command": "touch /tmp/well; sleep 20; exit 3"},
            {"min_healthy": "30s"},
            marks=pytest.mark.full,
        ),
    ],
    ids=["missing-image", "failing-check", "crash-after-20s"],
)
def test_promise_15_a_revision_that_fails_its_gate_is_rolled_back_after_one_batch(
    cluster: Cluster,
    persysctl: Persysctl,
    set_file: Callable[..., str],
    unique_id: str,
    spec: str,
    change: dict[str, str],
    update: dict[str, str],
) -> None:
    deploy(cluster, persysctl, set_file(spec), unique_id)

    with HealthyContainers(cluster.node_id) as healthy:
        done = apply(persysctl, set_file(spec, version=2, **change, **update))
        assert done.returncode != 0
        assert "rolled back" in done.stderr + done.stdout
        eventually(lambda: healthy.count() == REPLICAS, "all members are healthy", within=120)

    assert healthy.fewest >= REPLICAS - 2
    assert len(set(healthy.started_with("VERSION=2"))) <= 2
    eventually(
        lambda: [one["VERSION"] for one in environments(cluster, unique_id)] == ["1"] * REPLICAS,
        "only members of the first version run",
    )


@pytest.fixture
def kill_scheduler(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Kills the scheduler when it reaches a failpoint. Afterwards it runs without one."""

    def run_until_killed(failpoint: str) -> None:
        if cluster.scheduler.runs:
            cluster.scheduler.kill()
        cluster.scheduler.set("PERSYS_FAILPOINT", failpoint)
        cluster.scheduler.launch()
        eventually(lambda: not cluster.scheduler.runs, f"killed at {failpoint}", within=180)

    yield run_until_killed
    cluster.scheduler.set("PERSYS_FAILPOINT", "")
    if not cluster.scheduler.runs:
        cluster.scheduler.start()


def test_promise_17_a_rollout_ends_although_the_scheduler_is_killed_at_each_step(
    cluster: Cluster,
    persysctl: Persysctl,
    set_file: Callable[..., str],
    unique_id: str,
    kill_scheduler: Callable[[str], None],
) -> None:
    deploy(cluster, persysctl, set_file(), unique_id)

    with HealthyContainers(cluster.node_id) as healthy:
        path = set_file(version=2)
        assert persysctl("apply", "-f", path).returncode == 0
        for count in range(1, 4):  # passes of the set since the start of the process
            for step in ("set-record-stored", "set-members-put"):
                kill_scheduler(f"{step}:{count}")
        cluster.scheduler.set("PERSYS_FAILPOINT", "")
        cluster.scheduler.start()
        done = apply(persysctl, path)
        assert done.returncode == 0, done.stderr + done.stdout

    assert healthy.fewest >= REPLICAS - 2
    assert len(healthy.started_with("VERSION=2")) == REPLICAS
    assert {one["VERSION"] for one in environments(cluster, unique_id)} == {"2"}


def test_replicas_turn_a_workload_into_a_set(
    cluster: Cluster,
    persysctl: Persysctl,
    set_file: Callable[..., str],
    unique_id: str,
    tmp_path: Path,
) -> None:
    path = set_file()
    single = tmp_path / "single.yaml"
    lines = Path(path).read_text().splitlines(keepends=True)
    single.write_text(
        "".join(line for line in lines if not line.startswith(("replicas", "update")))
    )
    assert persysctl("apply", "-f", str(single), "--wait", "60s").returncode == 0

    deploy(cluster, persysctl, path, unique_id)

    eventually(lambda: not cluster.knows(unique_id), "the single workload is deleted")


def test_a_set_is_scaled_out_and_in(
    cluster: Cluster, persysctl: Persysctl, set_file: Callable[..., str], unique_id: str
) -> None:
    deploy(cluster, persysctl, set_file(), unique_id)

    assert persysctl("scale", unique_id, "8", "--wait").returncode == 0
    assert len(members(cluster, unique_id)) == 8
    assert persysctl("scale", unique_id, "2", "--wait").returncode == 0

    eventually(
        lambda: members(cluster, unique_id) == [f"{unique_id}-0", f"{unique_id}-1"],
        lambda: f"two members, but there are {members(cluster, unique_id)}",
    )


def test_undo_returns_to_the_previous_revision(
    cluster: Cluster, persysctl: Persysctl, set_file: Callable[..., str], unique_id: str
) -> None:
    deploy(cluster, persysctl, set_file(), unique_id)
    deploy(cluster, persysctl, set_file(version=2), unique_id)

    assert persysctl("rollout", "undo", unique_id, "--wait").returncode == 0

    assert {one["VERSION"] for one in environments(cluster, unique_id)} == {"1"}
    history = persysctl("rollout", "history", unique_id).stdout
    assert "1" in history
    assert "2" in history
