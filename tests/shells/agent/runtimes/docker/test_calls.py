"""How many calls to Docker an agent makes for a container."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from socket_proxy import Proxy

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    proxy = Proxy(tmp_path / "docker.sock")
    proxy.restore()
    yield proxy
    proxy.close()


@pytest.fixture
def counted(new_agent: "Callable[..., Agent]", proxy: Proxy) -> "Agent":
    """An agent whose calls to Docker the proxy records. It has listed its containers."""
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}", PERSYS_RECONCILE_INTERVAL="1h")
    agent.start()
    return agent


def test_a_container_is_created_started_and_inspected_once(
    counted: "Agent", proxy: Proxy, unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    counted.apply(f"{unique_id}-0", sleeper)
    counted.wait_for(f"{unique_id}-0", RUNNING)
    proxy.requests.clear()

    counted.apply(unique_id, sleeper)
    counted.wait_for(unique_id, RUNNING)
    (container_id,) = counted.containers(unique_id)
    calls = [
        request
        for request in proxy.requests
        if f"-{unique_id}-" in request or unique_id in request or container_id in request
    ]
    made = [request.partition("?")[0].rpartition("/")[2] for request in calls]

    assert made[:2] == ["create", "start"]
    assert set(made[2:]) == {"json"}
    # The event of the start may arrive after the inspection has begun, which causes another one.
    assert len(made) <= 4


def test_many_containers_of_one_image_share_the_check_whether_it_is_present(
    counted: "Agent", proxy: Proxy, unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    names = [f"{unique_id}-{number}" for number in range(8)]
    requests = [
        agent_pb2.ApplyWorkloadRequest(
            id=name,
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            revision_id="r1",
            desired_state=agent_pb2.DESIRED_STATE_RUNNING,
            spec=agent_pb2.WorkloadSpec(container=sleeper),
        )
        for name in names
    ]

    counted.stub.ApplyWorkloads(agent_pb2.ApplyWorkloadsRequest(orders=requests), timeout=20)
    for name in names:
        counted.wait_for(name, RUNNING)

    checks = [request for request in proxy.requests if "/images/" in request]
    assert 1 <= len(checks) <= len(names) // 2
