"""Into workloads, through the scheduler to their nodes: only it may be able to reach them.

Nothing is kept here: each message goes on before the next one is taken, so a slow reader slows the writer. A
caller that leaves takes the agent's call with it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from persys.errors import AgentUnreachableError, InvalidError, NotFoundError, RefusedError
from persys.infra.together import together
from persys.model.ids import WorkloadId
from persys.scheduler.agents import GrpcAgents, OpenCall
from persys.scheduler.api.service import Context, need
from persys.scheduler.cluster import Cluster
from persys.wire import access
from persys.wire.gen.control.v1 import control_pb2

Inputs = AsyncIterator[control_pb2.ExecInput]


class AccessApi:
    def __init__(self, cluster: Cluster, agents: GrpcAgents) -> None:
        self._cluster = cluster
        self._agents = agents

    async def StreamLogs(self, request: control_pb2.LogsRequest, context: Context) -> None:
        need(request.workload_id, "workload_id")
        with self._call(request.workload_id, "StreamLogs") as open_call:
            call = open_call(access.logs_request(request))
            try:
                async for chunk in call:
                    await context.write(access.log_chunk(chunk))
            finally:
                call.cancel()

    async def Exec(self, inputs: Inputs, context: Context) -> None:
        first = await anext(inputs, None)
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "is missing; a session begins with it")
        need(first.start.workload_id, "start.workload_id")
        with self._call(first.start.workload_id, "Exec") as open_call:
            call = open_call()
            try:
                async with together() as group:
                    begun = asyncio.Event()
                    feeding = group.create_task(_feed(call, first, inputs, begun))
                    async for output in call:
                        begun.set()
                        await context.write(access.exec_output(output))
                    feeding.cancel()
            finally:
                call.cancel()

    @contextmanager
    def _call(self, named: str, method: str) -> Iterator[OpenCall]:
        entry = self._cluster.entries.get(WorkloadId(named))
        if entry is None:
            raise NotFoundError("workload", named)
        if entry.assignment is None:
            raise RefusedError(f"{named} is on no node now; persysctl explain {named} says why")
        node = self._cluster.members[entry.assignment.node_id].node  # bound to it, so it is known
        try:
            with self._agents.stream(node.id, node.endpoint, method) as open_call:
                yield open_call
        except AgentUnreachableError as err:
            # Not UNAVAILABLE: whoever asks has reached the scheduler well.
            raise RefusedError(
                f"node {node.id}, which has {named}, gives no answer: {err}"
            ) from err


async def _feed(
    call: Any, first: control_pb2.ExecInput, inputs: Inputs, begun: asyncio.Event
) -> None:
    """What the agent refuses is told by reading; a write that fails has no reason to tell."""
    with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        await call.write(access.exec_input(first))
        await begun.wait()  # gRPC would tell a write that was too late, and not the refusal
        async for one in inputs:
            await call.write(access.exec_input(one))
        await call.done_writing()
