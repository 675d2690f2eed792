"""disk_gb of containers and stacks on a real Docker whose storage driver has no size support."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import compose_binaries
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import docker
from shells.agent.runtimes.compose.stacks import apply, until

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
WITHIN = 60.0
TOO_MUCH = "fallocate -l 1100M /big 2>/dev/null || dd if=/dev/zero of=/big bs=1M count=1100"
BRISK = {"PERSYS_DISK_LIMIT_INTERVAL": "500ms", "PERSYS_RECONCILE_INTERVAL": "1h"}


def test_a_container_over_its_disk_limit_is_stopped_with_a_reason(
    new_agent: "Callable[..., Agent]", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent = new_agent(**BRISK)
    agent.start()
    sleeper.resources.disk_gb = 1
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    agent.inside(unique_id, "sh", "-c", TOO_MUCH)
    status = agent.wait_for(unique_id, FAILED, within=WITHIN)

    assert status.metadata["failure_reason"] == "STORAGE_ERROR"
    assert status.metadata["reason_code"] == "DiskLimitExceeded"
    assert "more than disk_gb 1" in status.message
    assert agent.containers(unique_id, running=True) == []
    assert len(agent.containers(unique_id)) == 1
    sleeper.resources.disk_gb = 2
    agent.apply(unique_id, sleeper, revision="r2")
    agent.wait_for(unique_id, RUNNING)


def test_with_policy_report_it_keeps_running_with_a_note(
    new_agent: "Callable[..., Agent]", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent = new_agent(PERSYS_DISK_LIMIT_POLICY="report", **BRISK)
    agent.start()
    sleeper.resources.disk_gb = 1
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    agent.inside(unique_id, "sh", "-c", TOO_MUCH)

    until(lambda: "disk_gb 1" in agent.status(unique_id).metadata.get("note", ""))
    assert agent.status(unique_id).actual_state == RUNNING


def test_a_stack_over_its_disk_limit_is_stopped(
    new_agent: "Callable[..., Agent]", unique_id: str, demo_image: str
) -> None:
    agent = new_agent(
        PERSYS_COMPOSE_ENABLED="true", PERSYS_COMPOSE_BINARY=compose_binaries.V2, **BRISK
    )
    agent.start()
    text = f"""
services:
  web: {{image: {demo_image}, command: [sleep, "3600"], init: true}}
"""
    apply(agent, unique_id, text, disk_gb=1)
    agent.wait_for(unique_id, RUNNING, within=WITHIN)

    docker("exec", *agent.containers(unique_id), "sh", "-c", TOO_MUCH)
    status = agent.wait_for(unique_id, FAILED, within=WITHIN)

    assert status.metadata["reason_code"] == "DiskLimitExceeded"
    assert agent.containers(unique_id, running=True) == []
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
