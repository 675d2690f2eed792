"""Docker is stopped under containers and stacks, and started again: it stops all and starts some.

The stop is longer than all grace periods, deadlines and intervals of the reconcilers.
"""

import time
from collections.abc import Iterator

import pytest

import compose_binaries
from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.own_docker import OwnDocker
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

OUTAGE_SECONDS = 7.0  # longer than any interval below
WITHIN_SECONDS = 5.0
STACK = """
services:
  keeps:
    image: {image}
    command: [sleep, "3600"]
    init: true
    restart: unless-stopped
    volumes: ["data:/data"]
  once:
    image: {image}
    command: [sh, -c, "echo ran >> /data/runs"]
    volumes: ["data:/data"]
volumes: {{data: }}
"""


@pytest.fixture(scope="module")
def own_docker(demo_image: str) -> Iterator[OwnDocker]:
    created = OwnDocker()
    try:
        created.start()
        created.copy_image(demo_image)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", created.host)  # for the docker commands of the tests
            yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def cluster_settings(own_docker: OwnDocker) -> dict[str, dict[str, str]]:
    return {
        "scheduler": {
            "SCHEDULER_RECONCILE_INTERVAL": "1s",
            "SCHEDULER_MISSING_GRACE_PERIOD": "2s",
            "SCHEDULER_AGENT_APPLY_TIMEOUT": "6s",
            "SCHEDULER_AGENT_DELETE_TIMEOUT": "4s",
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_NODE_LEASE": "3s",
            "SCHEDULER_NODE_UNAVAILABLE_GRACE": "2s",
        },
        "agent": {
            "DOCKER_HOST": own_docker.host,
            "PERSYS_COMPOSE_ENABLED": "true",
            "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
            "PERSYS_RECONCILE_INTERVAL": "1s",
        },
    }


@pytest.fixture(scope="module")
def running(cluster: Cluster, demo_image: str) -> list[str]:
    """Two containers and two stacks."""
    container = pb.WorkloadSpec(
        resources=pb.ResourceRequirements(cpu_millicores=100, memory_mb=16),
        container=pb.ContainerSpec(image=demo_image, command=["sleep", "3600"], init=True),
    )
    stack = pb.WorkloadSpec(
        compose=pb.ComposeSpec(inline_yaml=STACK.format(image=demo_image), volume_policy="Delete")
    )
    specs = {"web-1": container, "web-2": container, "stack-1": stack, "stack-2": stack}
    for name, spec in specs.items():
        cluster.apply(name, spec)
    cluster.wait_for_all(specs, "Running")
    return list(specs)  # they stop with their Docker


def test_promise_11_a_restart_of_docker_deletes_and_duplicates_nothing(
    cluster: Cluster, own_docker: OwnDocker, running: list[str]
) -> None:
    before, runs = _resources(cluster), _runs(cluster)

    own_docker.stop()
    _stay_unknown(cluster, running)

    own_docker.start()
    cluster.wait_for_all(running, "Running", within=WITHIN_SECONDS)
    assert _resources(cluster) == before
    eventually(
        lambda: set(_services(cluster)) == {"keeps=running,once=completed"},
        lambda: f"the statuses are true: {_services(cluster)}",
        within=WITHIN_SECONDS,
    )
    assert _runs(cluster) == runs, "what had ended well is not run again"
    assert [view.retry_attempts for view in cluster.client.list_workloads()] == [0] * 4


def test_workloads_are_started_again_after_docker_was_killed(
    cluster: Cluster, own_docker: OwnDocker, running: list[str]
) -> None:
    before = _resources(cluster)

    own_docker.kill()
    _stay_unknown(cluster, running)

    # After its start Docker stops the containers that were left running; the agent starts them.
    own_docker.start()
    eventually(
        lambda: "Unknown" not in cluster.statuses().values(),
        lambda: f"the statuses are true: {cluster.statuses()}",
        within=WITHIN_SECONDS,
    )
    cluster.wait_for_all(running, "Running")
    assert _resources(cluster) == before
    assert [view.retry_attempts for view in cluster.client.list_workloads()] == [0] * 4


def _stay_unknown(cluster: Cluster, names: list[str]) -> None:
    cluster.wait_for_all(names, "Unknown", within=WITHIN_SECONDS)
    until = time.monotonic() + OUTAGE_SECONDS
    while time.monotonic() < until:
        assert set(cluster.statuses().values()) == {"Unknown"}
        assert cluster.node().status == "Ready"
        time.sleep(0.2)


def _resources(cluster: Cluster) -> tuple[set[str], set[str], set[str]]:
    """All containers, volumes and networks."""
    networks = set(docker("network", "ls", "-q", "--filter", "type=custom").split())
    volumes = set(docker("volume", "ls", "-q").split())
    found = {one.id for one in cluster.containers()}
    assert (len(found), len(volumes), len(networks)) == (6, 2, 2)
    return found, volumes, networks


def _services(cluster: Cluster) -> list[str]:
    views = [cluster.client.get_workload(name) for name in ("stack-1", "stack-2")]
    return [view.metadata["compose.services"] for view in views]


def _runs(cluster: Cluster) -> set[str]:
    """How often the job of each stack has run."""
    running = [one for one in cluster.containers(["stack-1", "stack-2"]) if one.running]
    return {f"{one.id}: {docker('exec', one.id, 'cat', '/data/runs')}" for one in running}
