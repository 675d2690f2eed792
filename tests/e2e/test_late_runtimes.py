"""An agent that starts before its runtimes: each is used as soon as it responds, without a restart."""

from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster
from e2e.own_docker import OwnDocker
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

WITHIN_SECONDS = 60


@pytest.fixture(scope="module")
def own_docker() -> Iterator[OwnDocker]:
    """Not started yet: its socket does not exist."""
    created = OwnDocker()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", created.host)  # for the docker commands of the tests
            yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def cluster_settings(own_docker: OwnDocker) -> dict[str, dict[str, str]]:
    return {
        "scheduler": {"SCHEDULER_HEARTBEAT_INTERVAL": "1s"},
        "agent": {"DOCKER_HOST": own_docker.host, "PERSYS_VM_ENABLED": "false"},
    }


def test_docker_started_after_the_agent_is_used(
    cluster: Cluster,
    own_docker: OwnDocker,
    demo_image: str,
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
) -> None:
    (name,) = names(1)
    node = cluster.client.list_nodes()[0].node_id

    def problems() -> list[str]:
        return list(cluster.client.get_node(node).problems)

    eventually(
        lambda: any(each.startswith("runtime does not respond: ") for each in problems()),
        "the node to report that Docker does not answer",
        within=WITHIN_SECONDS,
    )
    cluster.apply(name, sleeper)
    cluster.wait_for(name, "Pending")
    assert "container runtime" in cluster.client.get_workload(name).reason.message

    with pytest.MonkeyPatch.context() as patch:
        own_docker.start()
        patch.delenv("DOCKER_HOST")
        own_docker.copy_image(demo_image)

    cluster.wait_for(name, "Running", within=WITHIN_SECONDS)
    assert problems() == []
