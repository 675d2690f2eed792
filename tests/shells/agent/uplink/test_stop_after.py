"""With stop_after the agent restarts containers instead of Docker. Also: deletes that keep the data."""

from typing import TYPE_CHECKING

from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import FAILED, RUNNING, eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from shells.agent.conftest import Agent


def test_a_container_that_dies_is_restarted_by_the_agent_and_not_by_docker(
    agent: "Agent",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    agent.apply(unique_id, sleeper, stop_after=60)
    before = agent.wait_for(unique_id, RUNNING).metadata["container.started_at"]
    (container,) = agent.containers(unique_id)
    policy = run_docker("inspect", "-f", "{{.HostConfig.RestartPolicy.Name}}", container)

    run_docker("kill", container)
    eventually(
        lambda: agent.status(unique_id).metadata.get("container.started_at", before) > before,
        "it runs again",
    )
    assert policy == "no"
    assert agent.containers(unique_id, running=True) == [container]


def test_a_container_that_keeps_dying_is_a_crash_loop(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    agent.apply(unique_id, shell("exit 7", restart="always"), stop_after=60)
    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["reason_code"] == "CrashLoop"
    assert "exited with code 7" in status.message


def test_a_delete_with_keep_data_removes_only_the_container(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    sleeper.managed_volumes.add(name="data", driver="local", mount_path="/data")
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    (data,) = (agent.volumes / unique_id).rglob("data")

    agent.delete(unique_id, keep_data=True)
    agent.wait_until_gone(unique_id)
    assert agent.containers(unique_id) == []
    assert data.is_dir()
