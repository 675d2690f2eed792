"""A third-party node: an agent that implements only the contract, and its heartbeats.

It replies to an apply at once with PENDING and a task id; the result is polled. It has no epochs and pushes
no status. It uses none of the scheduler's code.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from persys.wire.gen.agent.v1 import agent_pb2 as pb
from persys.wire.gen.agent.v1.agent_pb2_grpc import (
    AgentServiceServicer,
    add_AgentServiceServicer_to_server,
)
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

Context = grpc.aio.ServicerContext[Any, Any]
HEARTBEAT_SECONDS = 0.2
_STATES = {
    pb.ACTUAL_STATE_UNSPECIFIED: "Unknown",
    pb.ACTUAL_STATE_PENDING: "Pending",
    pb.ACTUAL_STATE_RUNNING: "Running",
    pb.ACTUAL_STATE_STOPPED: "Stopped",
    pb.ACTUAL_STATE_FAILED: "Failed",
    pb.ACTUAL_STATE_UNKNOWN: "Unknown",
}


@dataclass
class Copy:
    """The agent's state of one workload."""

    status: pb.WorkloadStatus
    applied: int = 0


@dataclass
class Behaviour:
    """How this agent behaves; tests change it while it runs."""

    work_seconds: float = 0.02  # from PENDING to the result
    answer_seconds: float = 0.0  # before any call is replied to
    echoes_revision: bool = True
    # After a delete: FAILED with a delete- task id, as some reply; else the workload is unknown at once.
    reports_deletes: bool = True
    # Has no runtime: reported in the reply to an apply, or only in the result.
    refuses_at_once: bool = False
    refuses_later: bool = False
    rejects: str = ""  # the text of a status with which it refuses every apply
    is_full: bool = False  # refuses workloads that it does not have yet
    tells_actions: bool = True  # else it does not support that call
    keeps_copies: bool = False  # accepts deletes and ignores them
    lists_tasks: bool = False  # stores what ListActions returns
    # A failed apply is UNKNOWN with `last_error`, and a deleted workload STOPPED for ever.
    like_existing_agents: bool = False
    failures: dict[str, tuple[str, str]] = field(default_factory=dict)  # id: reason word, text
    # Supports what only Persys agents support: epochs, intents and the cluster uid.
    is_ours: bool = False
    # What HealthCheck reports of each runtime; None: it does not support that call.
    runtimes: dict[str, str] | None = None


class Agent(AgentServiceServicer):
    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.copies: dict[str, Copy] = {}
        self.applies: list[pb.ApplyWorkloadRequest] = []
        self.senders: list[str] = []  # the source address of each order
        self.deletes: list[str] = []
        self.asked: list[str] = []
        self.actions: list[pb.AgentAction] = []
        self.inquiries: list[pb.ListActionsRequest] = []
        self.listed_volumes: list[pb.VolumeView] | None = (
            None  # None: it does not support that call
        )
        self.intents: list[pb.IntentView] | None = None  # None: it stores none
        self.kept: dict[str, pb.IntentView] = {}  # as Persys agents store them
        self.starts: list[str] = []  # every start of work, not every accepted order
        self.endpoint = ""
        self.credentials: grpc.ServerCredentials | None = None  # set before it starts
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Serve, on the same port as before if there was one."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_AgentServiceServicer_to_server(self, self._server)
        address = self.endpoint or "127.0.0.1:0"
        if self.credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, self.credentials)
        self.endpoint = f"127.0.0.1:{port}"
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def HealthCheck(  # noqa: N802
        self, request: pb.HealthCheckRequest, context: Context
    ) -> pb.HealthCheckResponse:
        if self.behaviour.runtimes is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        return pb.HealthCheckResponse(healthy=True, runtime_status=self.behaviour.runtimes)

    def running(self) -> set[str]:
        return {
            name
            for name, copy in self.copies.items()
            if copy.status.actual_state == pb.ACTUAL_STATE_RUNNING
        }

    async def ApplyWorkload(  # noqa: N802
        self, request: pb.ApplyWorkloadRequest, context: Context
    ) -> pb.ApplyWorkloadResponse:
        if hasattr(context, "peer"):  # a call on a stream has no connection of its own
            self.senders.append(context.peer())
        await asyncio.sleep(self.behaviour.answer_seconds)
        self.applies.append(request)
        if self.behaviour.rejects:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.behaviour.rejects)
        if self.behaviour.refuses_at_once:
            return pb.ApplyWorkloadResponse(applied=False, message="runtime not available: docker")
        if self.behaviour.is_full and request.id not in self.copies:
            return _full(request)
        if self.behaviour.is_ours:
            self.kept[request.id] = pb.IntentView(
                id=request.id, epoch=request.epoch, intent=request.intent
            )
            if (known := self.copies.get(request.id)) and _says_the_same(request, known.status):
                known.status.epoch, known.status.proof = request.epoch, request.proof
                return pb.ApplyWorkloadResponse(applied=True, skipped=True, status=known.status)
        self.starts.append(request.id)
        self._task(request.id, "apply")
        copy = self.copies.setdefault(request.id, Copy(pb.WorkloadStatus(id=request.id)))
        copy.applied += 1
        number = copy.applied
        status = copy.status
        status.type = request.type
        status.revision_id = request.revision_id if self.behaviour.echoes_revision else ""
        status.desired_state = request.desired_state
        status.epoch = request.epoch if self.behaviour.is_ours else 0
        status.proof = request.proof if self.behaviour.is_ours else b""
        status.actual_state = pb.ACTUAL_STATE_PENDING
        status.message = "task accepted"
        status.metadata.clear()
        status.metadata["task_id"] = f"apply-{request.id}-{number}"
        status.metadata["task_status"] = "pending"
        asyncio.get_running_loop().call_later(
            self.behaviour.work_seconds, self._finish, request.id, number
        )
        return pb.ApplyWorkloadResponse(applied=True, message="queued", status=status)

    async def DeleteWorkload(  # noqa: N802
        self, request: pb.DeleteWorkloadRequest, context: Context
    ) -> pb.DeleteWorkloadResponse:
        await asyncio.sleep(self.behaviour.answer_seconds)
        self.deletes.append(request.id)
        self._task(request.id, "delete")
        asyncio.get_running_loop().call_later(
            self.behaviour.work_seconds,
            self._finish_delete,
            request.id,
            self._applies_of(request.id),
        )
        return pb.DeleteWorkloadResponse(success=True, message="queued")

    async def GetWorkloadStatus(  # noqa: N802
        self, request: pb.GetWorkloadStatusRequest, context: Context
    ) -> pb.GetWorkloadStatusResponse:
        await asyncio.sleep(self.behaviour.answer_seconds)
        self.asked.append(request.id)
        copy = self.copies.get(request.id)
        if copy is None:
            await context.abort(grpc.StatusCode.UNKNOWN, "workload not found")
        return pb.GetWorkloadStatusResponse(status=copy.status)

    async def ListWorkloads(  # noqa: N802
        self, request: pb.ListWorkloadsRequest, context: Context
    ) -> pb.ListWorkloadsResponse:
        await asyncio.sleep(self.behaviour.answer_seconds)
        return pb.ListWorkloadsResponse(workloads=[copy.status for copy in self.copies.values()])

    async def ListIntents(  # noqa: N802
        self, request: pb.ListIntentsRequest, context: Context
    ) -> AsyncIterator[pb.IntentView]:
        for intent in self.kept.values():
            yield intent
        if self.intents is None and not self.kept:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method ListIntents")
        for intent in self.intents or ():
            yield intent

    async def ListActions(  # noqa: N802
        self, request: pb.ListActionsRequest, context: Context
    ) -> pb.ListActionsResponse:
        self.inquiries.append(request)
        if not self.behaviour.tells_actions:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method ListActions")
        return pb.ListActionsResponse(
            actions=[done for done in self.actions if done.workload_id == request.workload_id]
        )

    async def ListVolumes(  # noqa: N802
        self, request: pb.ListVolumesRequest, context: Context
    ) -> pb.ListVolumesResponse:
        if self.listed_volumes is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method ListVolumes")
        return pb.ListVolumesResponse(volumes=self.listed_volumes)

    def _finish(self, name: str, number: int) -> None:
        copy = self.copies.get(name)
        if copy is None or copy.applied != number:
            return
        status = copy.status
        status.metadata["task_status"] = "completed"
        status.message = ""
        self._task_ended(name, "apply", self.behaviour.failures.get(name, ("", ""))[1])
        if self.behaviour.refuses_later:
            self._fail(status, "", "runtime not available: docker")
        elif name in self.behaviour.failures:
            self._fail(status, *self.behaviour.failures[name])
        elif status.desired_state == pb.DESIRED_STATE_STOPPED:
            status.actual_state = pb.ACTUAL_STATE_STOPPED
        else:
            status.actual_state = pb.ACTUAL_STATE_RUNNING

    def _task(self, name: str, kind: str) -> None:
        if self.behaviour.lists_tasks:
            number = sum(task.workload_id == name for task in self.actions) + 1
            self.actions.append(
                pb.AgentAction(
                    task_id=f"{kind}-{name}-{number}",
                    workload_id=name,
                    action_type=f"{kind}_workload",
                    status="running",
                    created_at=int(time.time()),
                    started_at=int(time.time()),
                    ended_at=-62135596800,
                )
            )

    def _task_ended(self, name: str, kind: str, error: str) -> None:
        for task in self.actions:
            own = (task.workload_id, task.action_type) == (name, f"{kind}_workload")
            if own and task.status == "running":
                task.status = "failed" if error else "completed"
                task.error = error
                task.ended_at = int(time.time())

    def _fail(self, status: pb.WorkloadStatus, reason: str, text: str) -> None:
        if self.behaviour.like_existing_agents:
            status.actual_state = pb.ACTUAL_STATE_UNKNOWN
            status.message = "container not found"
            status.metadata.clear()
            status.metadata["last_error"] = text
            return
        status.actual_state = pb.ACTUAL_STATE_FAILED
        status.message = text
        status.metadata["task_status"] = "failed"
        if reason:
            status.metadata["failure_reason"] = reason
            status.metadata["last_error"] = text

    def _applies_of(self, name: str) -> tuple[Copy | None, int]:
        """Changes with each apply."""
        copy = self.copies.get(name)
        return copy, copy.applied if copy is not None else 0

    def _finish_delete(self, name: str, deleted: tuple[Copy | None, int]) -> None:
        if self.behaviour.keeps_copies:
            return
        if self._applies_of(name) != deleted:
            return  # it was applied again after this delete
        self._task_ended(name, "delete", "" if name in self.copies else "workload not found")
        if self.behaviour.like_existing_agents and name in self.copies:
            status = self.copies[name].status
            self.copies[name].applied += 1  # no result of an earlier apply counts any more
            status.actual_state = pb.ACTUAL_STATE_STOPPED
            status.message = "no containers"
            status.metadata.clear()
            return
        copy = self.copies.pop(name, None)
        self.kept.pop(name, None)
        if copy is not None and self.behaviour.reports_deletes:
            status = pb.WorkloadStatus(
                id=name,
                actual_state=pb.ACTUAL_STATE_FAILED,
                message="workload not found",
                metadata={"task_id": f"delete-{name}-1", "task_status": "failed"},
            )
            self.copies[name] = Copy(status)


def _full(request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
    text = "this node is full: cpu 93 % used; new workloads are accepted up to 80 %"
    status = pb.WorkloadStatus(
        id=request.id,
        revision_id=request.revision_id,
        epoch=request.epoch,
        actual_state=pb.ACTUAL_STATE_FAILED,
        message=text,
        metadata={
            "failure_reason": "INSUFFICIENT_RESOURCES",
            "last_error": text,
            "reason_code": "NodeFull",
        },
    )
    return pb.ApplyWorkloadResponse(message=text, status=status)


def _says_the_same(request: pb.ApplyWorkloadRequest, status: pb.WorkloadStatus) -> bool:
    return (request.revision_id, request.desired_state) == (
        status.revision_id,
        status.desired_state,
    )


class Node:
    """An agent that has joined a cluster: it registers and sends heartbeats until they are switched off."""

    def __init__(
        self, node_id: str, control: AgentControlStub, capabilities: control_pb2.NodeCapabilities
    ) -> None:
        self.id = node_id
        self.agent = Agent()
        self.cluster_id = ""  # the one it is configured for
        self.cluster_uid = ""
        self.capabilities = capabilities
        self.features: list[str] = []
        self.labels: dict[str, str] = {}
        self.sends_statuses = False  # in its heartbeats, without revisions
        self._control = control
        self._heartbeat_task: asyncio.Task[None] | None = None

    async def join(self) -> control_pb2.RegisterNodeResponse:
        response = await self.register()
        assert response.accepted, response.reason
        self.start_heartbeats()
        return response

    async def register(self) -> control_pb2.RegisterNodeResponse:
        request = control_pb2.RegisterNodeRequest(
            node_id=self.id,
            capabilities=self.capabilities,
            grpc_endpoint=self.agent.endpoint,
            features=self.features,
            labels=self.labels,
            cluster_id=self.cluster_id,
        )
        if self.agent.behaviour.is_ours:
            request.cluster_uid = self.cluster_uid
            request.workload_count = len(self.agent.copies)
        response: control_pb2.RegisterNodeResponse = await self._control.RegisterNode(
            request, timeout=10
        )
        self.cluster_uid = response.cluster_uid or self.cluster_uid
        return response

    async def heartbeat(self) -> control_pb2.HeartbeatResponse:
        request = control_pb2.HeartbeatRequest(node_id=self.id)
        if self.sends_statuses:
            request.workload_statuses.extend(
                control_pb2.WorkloadStatus(
                    workload_id=name, state=_STATES[copy.status.actual_state]
                )
                for name, copy in self.agent.copies.items()
            )
        response: control_pb2.HeartbeatResponse = await self._control.Heartbeat(request, timeout=10)
        return response

    def start_heartbeats(self) -> None:
        self._heartbeat_task = asyncio.get_running_loop().create_task(self._heartbeats())

    async def stop_heartbeats(self) -> None:
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            await asyncio.wait([self._heartbeat_task])
            self._heartbeat_task = None

    async def die(self) -> None:
        """No heartbeats and no agent, as after a power failure."""
        await self.stop_heartbeats()
        await self.agent.stop()

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self.heartbeat()
            except grpc.aio.AioRpcError:
                # Third-party agents register again on any heartbeat error, and continue if that fails too.
                try:
                    await self.register()
                except grpc.aio.AioRpcError:
                    continue


@asynccontextmanager
async def a_node(
    node_id: str,
    control: AgentControlStub,
    *,
    cpu: int = 4000,
    memory: int = 8192,
    types: tuple[str, ...] = ("container", "compose"),
) -> AsyncIterator[Node]:
    node = Node(
        node_id,
        control,
        control_pb2.NodeCapabilities(
            cpu_total_millicores=cpu,
            memory_total_mb=memory,
            supported_workload_types=types,
            supported_storage_drivers=["local"],
            storage_pools=[control_pb2.StoragePool(name="local", total_gb=100)],
        ),
    )
    await node.agent.start()
    try:
        yield node
    finally:
        await node.die()
