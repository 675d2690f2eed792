"""A Docker outage: nothing is deleted, state is unknown, and work resumes automatically."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from socket_proxy import Proxy

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
UNKNOWN = agent_pb2.ACTUAL_STATE_UNKNOWN


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    created = Proxy(tmp_path / "docker.sock")
    created.restore()
    yield created
    created.close()


def test_during_a_docker_outage_state_is_unknown_and_recovers_afterwards(
    new_agent: "Callable[..., Agent]",
    proxy: Proxy,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}")
    agent.start()
    agent.apply(unique_id, sleeper)
    before = agent.wait_for(unique_id, RUNNING)

    proxy.cut()
    silent = agent.wait_for(unique_id, UNKNOWN)
    health = agent.stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)
    response = agent.apply(f"{unique_id}-late", sleeper)
    agent.wait_for(f"{unique_id}-late", UNKNOWN)

    assert silent.message == "docker is not responding"
    assert not health.healthy
    assert health.runtime_status["container"] == "unhealthy: docker is not responding"
    assert response.applied
    assert agent.containers(unique_id, running=True) == [before.metadata["container.id"]]

    proxy.restore()
    after = agent.wait_for(unique_id, RUNNING)
    agent.wait_for(f"{unique_id}-late", RUNNING)

    assert after.metadata == before.metadata
    assert len(agent.logged("runtime.lost")) == 1
    assert len(agent.logged("runtime.returned")) == 1


def test_changes_during_an_outage_are_detected_afterwards(
    new_agent: "Callable[..., Agent]",
    proxy: Proxy,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    proxy.cut()
    agent.wait_for(unique_id, UNKNOWN)
    run_docker("rm", "-f", *agent.containers(unique_id))

    proxy.restore()

    agent.wait_for(unique_id, RUNNING)
    assert len(agent.containers(unique_id, running=True)) == 1


def test_an_outage_causes_no_busy_loop(
    new_agent: "Callable[..., Agent]",
    proxy: Proxy,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent(DOCKER_HOST=f"unix://{proxy.path}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    proxy.cut()
    agent.wait_for(unique_id, UNKNOWN)

    used, started_at = agent.cpu_seconds(), time.monotonic()
    time.sleep(2)  # the time over which CPU usage is measured

    assert (agent.cpu_seconds() - used) / (time.monotonic() - started_at) < 0.1
