"""A real agent that knows only a standby scheduler: everything works through it, also after it leads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.agent.conftest import Agent
from shells.scheduler.harness import Control, eventually
from shells.scheduler.replicas import Replicas, some_replicas, until_leading


@pytest.fixture
async def replicas() -> AsyncIterator[Replicas]:
    """One leader and one standby."""
    async with some_replicas() as created:
        await created.add()
        await created.add()
        yield created


@pytest.fixture
def agent(replicas: Replicas, tmp_path: Path) -> Iterator[Agent]:
    """It cannot be called: it registers an endpoint at which nothing listens."""
    created = Agent(
        tmp_path,
        "-insecure",
        PERSYS_SCHEDULER_ADDR=replicas.endpoints[1],
        PERSYS_AGENT_GRPC_ENDPOINT="127.0.0.1:1",
    )
    yield created
    created.close()


async def test_a_real_agent_works_through_a_standby_and_after_that_one_leads(
    replicas: Replicas, agent: Agent, demo_image: str, unique_id: str
) -> None:
    leader, standby = replicas.controls
    first, second = f"{unique_id}-1", f"{unique_id}-2"
    await asyncio.to_thread(agent.start)
    await runs(leader, first, demo_image)
    await heartbeats_arrive(leader, agent.node_id)
    assert await logs_of(leader, first) == b"hello\n"
    assert await logs_of(standby, first) == b"hello\n"
    containers = agent.containers(first, running=True)

    await replicas.stop(0)

    await until_leading(standby)
    await heartbeats_arrive(standby, agent.node_id)
    await runs(standby, second, demo_image)
    assert await logs_of(standby, first) == b"hello\n"
    assert agent.containers(first, running=True) == containers
    await standby.want(first, "Stopped")
    await standby.until(first, "Stopped")
    for name in (first, second):
        await standby.delete(name)
        await standby.until_gone(name)
    assert agent.containers() == []


async def runs(control: Control, name: str, image: str) -> None:
    line = "echo hello; exec sleep 3600"
    container = pb.ContainerSpec(image=image, command=["sh", "-c", line], init=True)
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=30, memory_mb=16),
        container=container,
    )
    response = await control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
    assert response.success, response.error_message
    await control.until(name, "Running")


async def heartbeats_arrive(control: Control, node_id: str) -> None:
    """As reported by the leader, which receives them."""
    before = (await control.node(node_id)).last_heartbeat.ToDatetime()

    async def later() -> bool:
        view = await control.node(node_id)
        return view.status == "Ready" and view.last_heartbeat.ToDatetime() > before

    await eventually(later, lambda: "one more heartbeat")


async def logs_of(control: Control, name: str) -> bytes:
    """Its log. The first line may appear shortly after it is running."""
    async with asyncio.timeout(10):
        while True:
            call = control.stub.StreamLogs(pb.LogsRequest(workload_id=name), timeout=10)
            if output := b"".join([chunk.data async for chunk in call]):
                return output
            await asyncio.sleep(0.05)
