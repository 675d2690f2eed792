"""A container from its first order to its deletion."""

from typing import TYPE_CHECKING

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
PENDING = agent_pb2.ACTUAL_STATE_PENDING
STOP = agent_pb2.DESIRED_STATE_STOPPED


def test_an_order_is_accepted_immediately_and_executed(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    response = agent.apply(unique_id, sleeper)

    assert response.applied
    assert not response.skipped
    assert response.status.actual_state == PENDING
    # The agent may begin before it replies: it need not ask Docker whether the container exists.
    assert response.status.metadata["task_status"] in ("pending", "running")
    status = agent.wait_for(unique_id, RUNNING)
    assert status.metadata["task_id"] == response.status.metadata["task_id"]
    assert status.metadata["task_status"] == "completed"
    assert [status.metadata["container.id"]] == agent.containers(unique_id, running=True)
    assert status.metadata["container.state"] == "running"


def test_the_same_revision_again_is_skipped(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    before = agent.wait_for(unique_id, RUNNING)

    response = agent.apply(unique_id, sleeper)

    assert response.skipped
    assert response.status.actual_state == RUNNING
    assert response.status.metadata["container.id"] == before.metadata["container.id"]


def test_another_desired_state_stops_and_starts_the_same_container(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    first = agent.wait_for(unique_id, RUNNING)

    agent.apply(unique_id, sleeper, desired=STOP)
    stopped = agent.wait_for(unique_id, STOPPED)
    agent.apply(unique_id, sleeper)
    again = agent.wait_for(unique_id, RUNNING)

    assert stopped.desired_state == STOP
    assert {first.metadata["container.id"]} == {
        stopped.metadata["container.id"],
        again.metadata["container.id"],
    }


def test_a_new_revision_replaces_the_container(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    old = agent.wait_for(unique_id, RUNNING)

    sleeper.env["COLOUR"] = "green"
    agent.apply(unique_id, sleeper, revision="r2")
    new = agent.wait_for(unique_id, RUNNING)

    assert new.revision_id == "r2"
    assert new.metadata["container.id"] != old.metadata["container.id"]
    assert agent.containers(unique_id) == [new.metadata["container.id"]]
    assert agent.inside(unique_id, "sh", "-c", "echo $COLOUR") == "green"


def test_the_old_revision_keeps_running_when_the_new_image_cannot_be_pulled(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    old = agent.wait_for(unique_id, RUNNING)

    sleeper.image = "persys-test:no-such-tag"
    sleeper.image_pull_policy = "Never"
    agent.apply(unique_id, sleeper, revision="r2")
    agent.wait_for(unique_id, agent_pb2.ACTUAL_STATE_FAILED)

    assert agent.containers(unique_id, running=True) == [old.metadata["container.id"]]


def test_a_deleted_workload_leaves_nothing(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    assert agent.delete(unique_id).success
    agent.wait_until_gone(unique_id)

    assert agent.containers(unique_id) == []
    with pytest.raises(grpc.RpcError) as error:
        agent.status(unique_id)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert "not found" in (error.value.details() or "")


def test_deleting_an_unknown_workload_succeeds(agent: "Agent", unique_id: str) -> None:
    response = agent.delete(unique_id)

    assert response.success
    assert response.message == f"workload not found: {unique_id}"


def test_a_stopped_workload_that_never_ran_needs_no_container(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    agent.apply(unique_id, sleeper, desired=STOP)

    agent.wait_for(unique_id, STOPPED)

    assert agent.containers(unique_id) == []


def test_the_newest_of_many_orders_wins(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    for number in range(5):
        sleeper.env["NUMBER"] = str(number)
        agent.apply(unique_id, sleeper, revision=f"r{number}")

    status = agent.wait_for(unique_id, RUNNING)

    assert status.revision_id == "r4"
    assert agent.inside(unique_id, "sh", "-c", "echo $NUMBER") == "4"
    assert len(agent.containers(unique_id)) == 1


def test_many_workloads_are_created_concurrently(
    agent: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    names = [f"{unique_id}-{number}" for number in range(12)]
    for name in names:
        agent.apply(name, sleeper)

    for name in names:
        agent.wait_for(name, RUNNING)
    for name in names:
        agent.delete(name)
    for name in names:
        agent.wait_until_gone(name)

    assert not any(agent.containers(name) for name in names)
