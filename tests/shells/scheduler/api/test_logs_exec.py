"""Logs and exec through the scheduler, to agents with an endpoint and to agents on control streams."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.api.test_control_stream import a_stream_agent
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Agent, Context

ENDLESS = "endless"
CHUNK = b"x" * 10_000


class LogsAgent(Agent):
    """An agent that serves logs and exec. Requests for `endless` never end."""

    def __init__(self) -> None:
        super().__init__()
        self.logs_asked: list[agent_pb2.LogsRequest] = []
        self.chunks_sent = 0
        self.left = asyncio.Event()

    async def StreamLogs(  # noqa: N802
        self, request: agent_pb2.LogsRequest, context: Context
    ) -> AsyncIterator[agent_pb2.LogChunk]:
        self.logs_asked.append(request)
        try:  # its reader may disconnect after any of them
            yield agent_pb2.LogChunk(data=b"out\n", stream="stdout")
            yield agent_pb2.LogChunk(data=b"err\n", stream="stderr", service="db")
            while request.workload_id == ENDLESS:
                self.chunks_sent += 1
                yield agent_pb2.LogChunk(data=CHUNK, stream="stdout")
        finally:
            self.left.set()

    async def Exec(  # noqa: N802
        self, requests: AsyncIterator[agent_pb2.ExecInput], context: Context
    ) -> None:
        start = await anext(requests)
        if start.start.command[0] == "refuse":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not here")
        try:  # its user may disconnect while the first reply is written
            await context.write(agent_pb2.ExecOutput())
            async for one in requests:
                if one.stdin_closed:
                    break
                await context.write(agent_pb2.ExecOutput(stdout=one.stdin.upper()))
        finally:
            self.left.set()
        exited = agent_pb2.ExecExit(code=3)
        await context.write(agent_pb2.ExecOutput(stderr=b"bye", exit=exited))


@asynccontextmanager
async def a_logs_agent(cluster: Cluster, way: str) -> AsyncIterator[LogsAgent]:
    logs_agent = LogsAgent()
    if way == "called":
        await logs_agent.start()
        node = await cluster.join()
        await node.agent.stop()
        node.agent = logs_agent
        await node.register()
        yield logs_agent
        return
    async with a_stream_agent(cluster, agent=logs_agent):
        yield logs_agent


@pytest.fixture(params=["called", "stream"])
async def logs_agent(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[LogsAgent]:
    async with a_logs_agent(cluster, request.param) as logs_agent:
        for name in ("web", ENDLESS):
            await cluster.control.apply(name)
            await cluster.control.until(name, "Running")
        yield logs_agent


def exec_inputs(*inputs: bytes, command: str = "echo") -> AsyncIterator[pb.ExecInput]:
    async def messages() -> AsyncIterator[pb.ExecInput]:
        yield pb.ExecInput(start=pb.ExecStart(workload_id="web", command=[command]))
        for data in inputs:
            yield pb.ExecInput(stdin=data)
        yield pb.ExecInput(stdin_closed=True)

    return messages()


async def test_logs_are_relayed_as_the_agent_sends_them(
    cluster: Cluster, logs_agent: LogsAgent
) -> None:
    request = pb.LogsRequest(workload_id="web", tail=7, service="db", timestamps=True)
    request.since.FromNanoseconds(1_500_000_000_000_000_001)

    chunks = [chunk async for chunk in cluster.control.stub.StreamLogs(request, timeout=10)]

    assert [(one.data, one.stream, one.service) for one in chunks] == [
        (b"out\n", "stdout", ""),
        (b"err\n", "stderr", "db"),
    ]
    (requested,) = logs_agent.logs_asked
    assert (requested.tail, requested.service, requested.timestamps) == (7, "db", True)
    assert requested.since_unix_nanos == 1_500_000_000_000_000_001


async def test_a_slow_reader_slows_the_agent(cluster: Cluster, logs_agent: LogsAgent) -> None:
    call = cluster.control.stub.StreamLogs(pb.LogsRequest(workload_id=ENDLESS))
    await call.read()
    sent = -1

    async def is_stalled() -> bool:
        nonlocal sent
        before, sent = sent, logs_agent.chunks_sent
        await asyncio.sleep(0.3)
        return before == logs_agent.chunks_sent

    await eventually(is_stalled, lambda: "the agent to wait")
    waited_at = logs_agent.chunks_sent
    for _ in range(waited_at + 50):
        await call.read()
    call.cancel()

    assert waited_at * len(CHUNK) < 32_000_000  # gRPC buffers per connection
    assert logs_agent.chunks_sent > waited_at


async def test_a_disconnected_reader_cancels_the_call_to_the_agent(
    cluster: Cluster, logs_agent: LogsAgent
) -> None:
    call = cluster.control.stub.StreamLogs(pb.LogsRequest(workload_id=ENDLESS))
    await call.read()

    call.cancel()

    async with asyncio.timeout(10):
        await logs_agent.left.wait()


async def test_exec_relays_input_and_output(cluster: Cluster, logs_agent: LogsAgent) -> None:
    chunks = [b"%d " % number for number in range(200)]

    call = cluster.control.stub.Exec(exec_inputs(*chunks), timeout=20)
    outputs = [one async for one in call]

    assert b"".join(one.stdout for one in outputs) == b"".join(chunks)
    assert (outputs[-1].stderr, outputs[-1].exit.code) == (b"bye", 3)


async def test_a_refusal_of_the_agent_is_returned_with_its_reason(
    cluster: Cluster, logs_agent: LogsAgent
) -> None:
    call = cluster.control.stub.Exec(exec_inputs(b"a", b"b", command="refuse"), timeout=10)

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == "not here"


async def test_a_session_ends_at_the_node_when_its_user_leaves(
    cluster: Cluster, logs_agent: LogsAgent
) -> None:
    call = cluster.control.stub.Exec()
    await call.write(pb.ExecInput(start=pb.ExecStart(workload_id="web", command=["echo"])))
    await call.write(pb.ExecInput(stdin=b"hello"))
    await call.read()

    call.cancel()

    async with asyncio.timeout(10):
        await logs_agent.left.wait()


async def test_logs_and_exec_work_while_nothing_can_be_written(
    cluster: Cluster, logs_agent: LogsAgent
) -> None:
    cluster.store.down = True
    await cluster.control.apply("notices")

    logs = cluster.control.stub.StreamLogs(pb.LogsRequest(workload_id="web"), timeout=10)
    outputs = [one async for one in cluster.control.stub.Exec(exec_inputs(b"a"), timeout=10)]

    assert len([chunk async for chunk in logs]) == 2
    assert outputs[-1].exit.code == 3
    cluster.store.down = False


async def test_a_third_party_agent_without_logs_is_refused_with_the_reason(
    cluster: Cluster,
) -> None:
    await cluster.join("old-one")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await cluster.control.stub.StreamLogs(pb.LogsRequest(workload_id="web"), timeout=10).read()

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "the agent of node old-one does not support StreamLogs" in (
        refused.value.details() or ""
    )


async def test_logs_of_an_unassigned_workload_are_refused(cluster: Cluster) -> None:
    await cluster.control.apply("waiting")

    request = pb.LogsRequest(workload_id="waiting")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await cluster.control.stub.StreamLogs(request, timeout=10).read()

    assert "is not assigned to a node" in (refused.value.details() or "")


async def test_a_node_that_does_not_reply_is_named(cluster: Cluster) -> None:
    node = await cluster.join("gone")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await node.agent.stop()

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await cluster.control.stub.StreamLogs(pb.LogsRequest(workload_id="web"), timeout=10).read()

    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "node gone, which runs web, does not reply" in (refused.value.details() or "")
