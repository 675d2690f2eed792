"""Admission control: new workloads are refused while the node is full."""

from collections.abc import Callable

from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import RUNNING, STOPPED, Agent, eventually

STOP = agent_pb2.DESIRED_STATE_STOPPED
CODE = "reason_code"


def with_cpu(spec: agent_pb2.ContainerSpec, millicores: int) -> agent_pb2.ContainerSpec:
    wanted = agent_pb2.ContainerSpec()
    wanted.CopyFrom(spec)
    wanted.resources.cpu_millicores = millicores
    return wanted


def test_above_a_threshold_new_workloads_are_refused_and_running_ones_continue(
    new_agent: Callable[..., Agent], sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent(PERSYS_ADMISSION_MEMORY_PERCENT="1", PERSYS_ADMISSION_HALF_LIFE="0s")
    agent.start()
    agent.apply(unique_id, sleeper)  # accepted: there is no sample yet
    agent.wait_for(unique_id, RUNNING)
    late = f"{unique_id}-late"
    responses: list[agent_pb2.ApplyWorkloadResponse] = []

    def is_refused() -> bool:
        responses.append(agent.apply(late, sleeper))
        if responses[-1].applied:
            agent.delete(late)
            agent.wait_until_gone(late)
        return not responses[-1].applied

    eventually(is_refused, "new work is refused")
    refusal = responses[-1].status
    assert refusal.metadata["failure_reason"] == "INSUFFICIENT_RESOURCES"
    assert refusal.metadata[CODE] == "NodeFull"
    assert "memory" in refusal.message
    assert "new workloads are accepted up to 1 %" in refusal.message
    assert not agent.knows(late)

    assert agent.apply(unique_id, sleeper, revision="r2").applied
    agent.wait_for(unique_id, RUNNING)
    assert agent.apply(unique_id, sleeper, revision="r2", desired=STOP).applied
    agent.wait_for(unique_id, STOPPED)
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)


def test_allocations_never_exceed_the_capacity_of_the_node(
    new_agent: Callable[..., Agent], sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent()
    agent.start()
    assert not agent.apply(unique_id, with_cpu(sleeper, 10_000_000)).applied

    assert agent.apply(unique_id, with_cpu(sleeper, 600)).applied
    beside = agent.apply(f"{unique_id}-b", with_cpu(sleeper, 1_000_000))
    assert beside.status.metadata[CODE] == "NodeFull"
    assert "600 of" in beside.message


def test_a_running_workload_is_accepted_after_a_lost_journal_even_when_the_node_is_full(
    new_agent: Callable[..., Agent], sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent()
    agent.start()
    spec = with_cpu(sleeper, 200)
    agent.apply(unique_id, spec)
    agent.wait_for(unique_id, RUNNING)
    before = agent.containers(unique_id)
    agent.kill()
    for path in agent.directory.glob("state.db*"):
        path.unlink()
    agent.set("PERSYS_SYSTEM_RESERVE_CPU_MILLICORES", "1000000")
    agent.start()

    assert not agent.apply(f"{unique_id}-new", spec).applied
    assert agent.apply(unique_id, spec).applied
    agent.wait_for(unique_id, RUNNING)
    assert agent.containers(unique_id) == before
