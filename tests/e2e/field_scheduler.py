"""A scheduler that knows only the contract, as they are in the field.

It opens a fresh connection for each call, polls, knows no epochs and no field above 99, and recognises a
missing workload by nothing but the words `not found`.
"""

# ruff: noqa: N802  # the contract names the methods

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

CALL_SECONDS = 10
DEADLINE_SECONDS = 60
HEARTBEAT_SECONDS = 1

Context = grpc.aio.ServicerContext[Any, Any]


class FieldScheduler(control_pb2_grpc.AgentControlServicer):
    def __init__(self) -> None:
        self.registrations: list[control_pb2.RegisterNodeRequest] = []
        self.heartbeats: list[control_pb2.HeartbeatRequest] = []
        self.knows_the_node = True
        self.store_is_frozen = False
        self._server = grpc.aio.server()
        control_pb2_grpc.add_AgentControlServicer_to_server(self, self._server)

    async def start(self) -> int:
        """Returns the port."""
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    async def stop(self) -> None:
        await self._server.stop(grace=0)

    # What it serves.

    async def RegisterNode(
        self, request: control_pb2.RegisterNodeRequest, context: Context
    ) -> control_pb2.RegisterNodeResponse:
        self.registrations.append(request)
        self.knows_the_node = True
        return control_pb2.RegisterNodeResponse(
            accepted=True, heartbeat_interval_seconds=HEARTBEAT_SECONDS
        )

    async def Heartbeat(
        self, request: control_pb2.HeartbeatRequest, context: Context
    ) -> control_pb2.HeartbeatResponse:
        if not self.knows_the_node:
            await context.abort(grpc.StatusCode.UNKNOWN, f"node {request.node_id} not registered")
        self.heartbeats.append(request)
        return control_pb2.HeartbeatResponse(acknowledged=True, drain_node=self.store_is_frozen)

    # What it calls.

    async def apply(
        self,
        workload_id: str,
        container: agent_pb2.ContainerSpec,
        *,
        revision: str,
        desired: agent_pb2.DesiredState = agent_pb2.DESIRED_STATE_RUNNING,
    ) -> agent_pb2.ApplyWorkloadResponse:
        request = agent_pb2.ApplyWorkloadRequest(
            id=workload_id,
            type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
            revision_id=revision,
            desired_state=desired,
            spec=agent_pb2.WorkloadSpec(container=container),
        )
        answer: agent_pb2.ApplyWorkloadResponse = await self._call("ApplyWorkload", request)
        return answer

    async def delete(self, workload_id: str) -> agent_pb2.DeleteWorkloadResponse:
        request = agent_pb2.DeleteWorkloadRequest(id=workload_id)
        answer: agent_pb2.DeleteWorkloadResponse = await self._call("DeleteWorkload", request)
        return answer

    async def status(self, workload_id: str) -> agent_pb2.WorkloadStatus | None:
        """None: the agent used the words for a missing workload."""
        request = agent_pb2.GetWorkloadStatusRequest(id=workload_id)
        try:
            answer = await self._call("GetWorkloadStatus", request)
        except grpc.aio.AioRpcError as err:
            if "not found" in (err.details() or ""):
                return None
            raise
        status: agent_pb2.WorkloadStatus = answer.status
        return status

    async def listed(self) -> dict[str, agent_pb2.WorkloadStatus]:
        answer = await self._call("ListWorkloads", agent_pb2.ListWorkloadsRequest())
        return {status.id: status for status in answer.workloads}

    # What it waits for.

    async def poll_until(
        self, workload_id: str, actual: agent_pb2.ActualState
    ) -> agent_pb2.WorkloadStatus:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                status = await self.status(workload_id)
                if status is not None and status.actual_state == actual:
                    return status
                await asyncio.sleep(0.05)

    async def poll_until_not_found(self, workload_id: str) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await self.status(workload_id) is not None:  # noqa: ASYNC110 - it can only poll
                await asyncio.sleep(0.05)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():  # noqa: ASYNC110 - what it was told lies in lists
                await asyncio.sleep(0.05)

    def told_states(self, workload_id: str) -> list[str]:
        """The state words of a workload in the order of the heartbeats that told them."""
        return [
            status.state
            for beat in self.heartbeats
            for status in _about(workload_id, beat.workload_statuses)
        ]

    async def _call(self, method: str, request: object) -> Any:
        endpoint = self.registrations[-1].grpc_endpoint
        async with grpc.aio.insecure_channel(endpoint) as channel:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            return await getattr(stub, method)(request, timeout=CALL_SECONDS)


def _about(
    workload_id: str, statuses: Iterable[control_pb2.WorkloadStatus]
) -> list[control_pb2.WorkloadStatus]:
    return [status for status in statuses if status.workload_id == workload_id]
