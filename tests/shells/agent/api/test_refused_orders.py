"""A refused order can be requested by its id, and is not listed."""

from pathlib import Path
from typing import Any

import pytest

from persys.agent.uplink import heartbeat
from persys.agent.uplink.heartbeat import Refusals
from persys.infra.clock import SystemClock
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.in_memory import Node, RunningAgent, a_context, a_running_agent

UNKNOWN_FIELD = agent_pb2.WorkloadSpec(
    container=agent_pb2.ContainerSpec(image="app:1", command=[""] * 2000)
)


async def status(running: RunningAgent, name: str) -> agent_pb2.WorkloadStatus:
    request = agent_pb2.GetWorkloadStatusRequest(id=name)
    response: Any = await running.call(running.api.GetWorkloadStatus(request, a_context()))
    found: agent_pb2.WorkloadStatus = response.status
    return found


async def refused(running: RunningAgent, name: str, *, revision: str = "r9") -> Any:
    request = agent_pb2.ApplyWorkloadRequest(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id=revision,
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=UNKNOWN_FIELD,
    )
    response = await running.call(running.api.ApplyWorkload(request, a_context()))
    assert not response.applied
    return response


async def listed(running: RunningAgent) -> list[str]:
    request = agent_pb2.ListWorkloadsRequest()
    response: Any = await running.call(running.api.ListWorkloads(request, a_context()))
    return [found.id for found in response.workloads]


async def test_a_refused_order_is_shown_as_failed_with_its_reason_and_not_listed(
    tmp_path: Path,
) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        response = await refused(running, "web")

        seen = await status(running, "web")

        assert seen.actual_state == agent_pb2.ACTUAL_STATE_FAILED
        assert seen.revision_id == "r9"
        assert seen.message == response.message != ""
        assert seen.metadata["failure_reason"] == "INVALID_SPEC"
        assert seen.metadata["refused"] == "true"
        assert await listed(running) == []


@pytest.mark.parametrize("ends", ["an accepted order", "a delete"])
async def test_a_refusal_is_removed_after(tmp_path: Path, ends: str) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await refused(running, "web")

        if ends == "a delete":
            request = agent_pb2.DeleteWorkloadRequest(id="web")
            await running.call(running.api.DeleteWorkload(request, a_context()))
            with pytest.raises(Exception, match="not found") as error:
                await status(running, "web")
            assert isinstance(error.value, Exception)
        else:
            await running.apply("web")
            assert "refused" not in (await status(running, "web")).metadata


async def test_a_refused_update_keeps_the_status_and_is_shown_in_metadata(
    tmp_path: Path,
) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.apply("web")
        await running.until(lambda: running.status("web") == "running", "it runs")

        response = await refused(running, "web")

        seen = await status(running, "web")
        assert (seen.actual_state, seen.revision_id) == (agent_pb2.ACTUAL_STATE_RUNNING, "r1")
        assert seen.metadata["refused_revision"] == "r9"
        assert seen.metadata["refused_reason"] == response.message
        assert "refused" not in seen.metadata


class LaterClock(SystemClock):
    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.monotonic = lambda: self.seconds


def test_refusals_expire_and_are_limited() -> None:
    clock = LaterClock()
    refusals = Refusals(clock)
    for number in range(heartbeat.REFUSALS_MAX + 1):
        refusals.note(agent_pb2.WorkloadStatus(id=f"w{number}"))

    assert refusals.get("w0") is None
    assert refusals.get("w1") is not None
    clock.seconds = heartbeat.REFUSAL_SECONDS + 1
    assert refusals.get("w1") is None
