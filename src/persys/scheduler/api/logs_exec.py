"""Logs, exec, ports and files: the scheduler relays them, because clients may not be able to reach nodes.

Nothing is buffered: each message is written before the next one is read, so a slow reader slows the writer.
When the client disconnects, the call to the agent is cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from google.protobuf.message import Message

from persys.errors import AgentUnreachableError, InvalidError, NotFoundError, RefusedError
from persys.infra.aio.task_group import task_group
from persys.model.ids import WorkloadId
from persys.scheduler.api.methods import Context, need
from persys.scheduler.dispatch.agent_client import AgentClient, OpenCall
from persys.scheduler.state.cluster import ClusterState
from persys.wire.agent import messages as agent_messages
from persys.wire.agent.messages import converted
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

Inputs = AsyncIterator[Any]
_AGENT_INPUTS: dict[str, type[Message]] = {
    "Exec": agent_pb2.ExecInput,
    "PortForward": agent_pb2.ForwardInput,
    "CopyFiles": agent_pb2.CopyInput,
}
_OUTPUTS: dict[str, type[Message]] = {
    "Exec": control_pb2.ExecOutput,
    "PortForward": control_pb2.ForwardOutput,
    "CopyFiles": control_pb2.CopyOutput,
}


class LogsExecApi:
    def __init__(self, cluster: ClusterState, agents: AgentClient) -> None:
        self._cluster = cluster
        self._agents = agents

    async def StreamLogs(self, request: control_pb2.LogsRequest, context: Context) -> None:
        need(request.workload_id, "workload_id")
        with self._call(request.workload_id, "StreamLogs") as open_call:
            call = open_call(agent_messages.logs_request(request))
            try:
                async for chunk in call:
                    await context.write(agent_messages.log_chunk(chunk))
            finally:
                call.cancel()

    async def Exec(self, inputs: Inputs, context: Context) -> None:
        await self._relay("Exec", inputs, context)

    async def PortForward(self, inputs: Inputs, context: Context) -> None:
        await self._relay("PortForward", inputs, context)

    async def CopyFiles(self, inputs: Inputs, context: Context) -> None:
        await self._relay("CopyFiles", inputs, context)

    async def _relay(self, method: str, inputs: Inputs, context: Context) -> None:
        """The messages of both contracts have the same fields."""
        first = await anext(inputs, None)
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "is missing: expected it in the first message of a session")
        need(first.start.workload_id, "start.workload_id")
        with self._call(first.start.workload_id, method) as open_call:
            call = open_call()
            try:
                async with task_group() as group:
                    begun = asyncio.Event()
                    feeding = group.create_task(
                        _feed(call, _AGENT_INPUTS[method], first, inputs, begun)
                    )
                    async for output in call:
                        begun.set()
                        await context.write(converted(output, _OUTPUTS[method]))
                    feeding.cancel()
            finally:
                call.cancel()

    @contextmanager
    def _call(self, named: str, method: str) -> Iterator[OpenCall]:
        entry = self._cluster.workloads.get(WorkloadId(named))
        if entry is None:
            raise NotFoundError("workload", named)
        if entry.assignment is None:
            raise RefusedError(
                f"workload {named} is not assigned to a node; run `persysctl explain {named}` for the reason"
            )
        node = self._cluster.nodes[entry.assignment.node_id].node  # assigned, so the node is known
        try:
            with self._agents.stream(node.id, node.endpoint, method) as open_call:
                yield open_call
        except AgentUnreachableError as err:
            # Not UNAVAILABLE: the client has reached the scheduler and must not retry elsewhere.
            raise RefusedError(
                f"node {node.id}, which runs {named}, does not reply: {err}"
            ) from err


async def _feed(
    call: Any, kind: type[Message], first: Message, inputs: Inputs, begun: asyncio.Event
) -> None:
    """The reader gets the reason when the agent refuses; a failed write carries no reason."""
    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        await call.write(converted(first, kind))
        await begun.wait()  # a write after the end would hide the agent's refusal
        async for one in inputs:
            await call.write(converted(one, kind))
        await call.done_writing()
