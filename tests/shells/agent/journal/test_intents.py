"""The intents that an agent stores for the scheduler, for recovery after a lost store."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING


def send(agent: "Agent", name: str, spec: agent_pb2.ContainerSpec, intent: bytes) -> bool:
    """Send an order. Returns whether the agent skipped it."""
    request = agent_pb2.ApplyWorkloadRequest(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(container=spec),
        epoch=3,
        intent=intent,
    )
    skipped: bool = agent.stub.ApplyWorkload(request, timeout=10).skipped
    return skipped


def intents(agent: "Agent") -> dict[str, tuple[int, bytes]]:
    kept = agent.stub.ListIntents(agent_pb2.ListIntentsRequest(), timeout=10)
    return {view.id: (view.epoch, view.intent) for view in kept}


def test_an_intent_is_stored_and_updated_and_survives_kill_9(
    new_agent: Callable[..., "Agent"], sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent()
    agent.start()
    send(agent, unique_id, sleeper, b"first")
    agent.wait_for(unique_id, RUNNING)
    before = agent.containers(unique_id)

    assert send(agent, unique_id, sleeper, b"second")
    agent.kill()
    agent.start()

    assert intents(agent) == {unique_id: (3, b"second")}
    assert agent.containers(unique_id) == before


def test_a_deleted_workload_has_no_intent(
    agent: "Agent", sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    send(agent, unique_id, sleeper, b"mine")
    assert unique_id in intents(agent)

    agent.delete(unique_id, epoch=3)

    assert unique_id not in intents(agent)
    agent.wait_until_gone(unique_id)


def test_an_order_without_an_intent_removes_the_stored_one(
    agent: "Agent", sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent.apply(unique_id, sleeper)

    assert unique_id not in intents(agent)
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
