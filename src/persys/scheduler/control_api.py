"""The AgentControl service: decode, hand on, encode.

Register, Apply, Delete and Retry refuse with OK and a reason in the answer, because clients in the field
read it there; only an empty id is an INVALID_ARGUMENT. Reads refuse with status codes.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import grpc

from persys.core import upkeep
from persys.errors import InvalidError, PersysError, RefusedError
from persys.infra.clock import Clock
from persys.model.failure import FailureReason
from persys.model.ids import WorkloadId, node_id
from persys.model.node import Capabilities, Node
from persys.scheduler.intake import Intake
from persys.scheduler.membership import Membership, Report
from persys.scheduler.metrics import Metrics
from persys.scheduler.queries import Queries
from persys.wire import control, status
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

Request = TypeVar("Request")
Answer = TypeVar("Answer")
DRAIN_SECONDS_MAX = 30 * 24 * 3600

Context = grpc.aio.ServicerContext[Any, Any]


class ControlApi(control_pb2_grpc.AgentControlServicer):
    def __init__(
        self,
        intake: Intake,
        membership: Membership,
        queries: Queries,
        clock: Clock,
        metrics: Metrics,
        *,
        heartbeat_seconds: int,
        trouble: Callable[[], str],
    ) -> None:
        self._intake = intake
        self._membership = membership
        self._queries = queries
        self._clock = clock
        self._heartbeat_seconds = heartbeat_seconds
        self._trouble = trouble
        for name in _METHODS:
            setattr(self, name, _measured(name, getattr(self, name), metrics, clock))

    async def RegisterNode(
        self, request: control_pb2.RegisterNodeRequest, context: Context
    ) -> control_pb2.RegisterNodeResponse:
        _need(request.node_id, "node_id")
        try:
            await self._membership.register(self._node(request))
        except PersysError as err:
            return control_pb2.RegisterNodeResponse(accepted=False, reason=str(err))
        return control_pb2.RegisterNodeResponse(
            accepted=True,
            heartbeat_interval_seconds=self._heartbeat_seconds,
            lease_expires_at=control.timestamp(self._membership.lease_ends_at()),
        )

    async def Heartbeat(
        self, request: control_pb2.HeartbeatRequest, context: Context
    ) -> control_pb2.HeartbeatResponse:
        _need(request.node_id, "node_id")
        sender = node_id(request.node_id)
        now = self._clock.now()
        report = Report(
            usage=control.usage(request.usage),
            observations=[
                control.observation(found, sender, now) for found in request.workload_statuses
            ],
            removed=[WorkloadId(gone) for gone in request.removed_workload_ids],
            workload_usage=[control.workload_usage(used) for used in request.workload_usage],
            complete=request.complete,
            clock_skew=_skew(request, now),
        )
        await self._membership.heartbeat(sender, report)
        return control_pb2.HeartbeatResponse(
            acknowledged=True,
            # While nothing can be written no node gets new work; what runs goes on.
            drain_node=bool(self._trouble()) or self._membership.is_draining(sender),
            lease_expires_at=control.timestamp(self._membership.lease_ends_at()),
        )

    async def ApplyWorkload(
        self, request: control_pb2.ApplyWorkloadRequest, context: Context
    ) -> control_pb2.ApplyWorkloadResponse:
        _need(request.workload_id, "workload_id")
        try:
            workload = await self._intake.apply(request)
        except PersysError as err:
            wrong = isinstance(err, RefusedError)
            return control_pb2.ApplyWorkloadResponse(
                success=False,
                failure_reason=control.failure_enum(FailureReason.INVALID_SPEC if wrong else None),
                error_message=str(err),
            )
        return control_pb2.ApplyWorkloadResponse(success=True, revision_id=workload.revision)

    async def DeleteWorkload(
        self, request: control_pb2.DeleteWorkloadRequest, context: Context
    ) -> control_pb2.DeleteWorkloadResponse:
        _need(request.workload_id, "workload_id")
        try:
            await self._intake.delete(request)
        except PersysError as err:
            return control_pb2.DeleteWorkloadResponse(success=False, error_message=str(err))
        return control_pb2.DeleteWorkloadResponse(success=True)

    async def RetryWorkload(
        self, request: control_pb2.RetryWorkloadRequest, context: Context
    ) -> control_pb2.RetryWorkloadResponse:
        _need(request.workload_id, "workload_id")
        try:
            await self._intake.retry(request)
        except PersysError as err:
            return control_pb2.RetryWorkloadResponse(accepted=False, reason=str(err))
        return control_pb2.RetryWorkloadResponse(accepted=True)

    async def CordonNode(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        return await self._change_node(
            request.node_id, "NodeCordoned", lambda node: upkeep.cordon(node, now=self._clock.now())
        )

    async def UncordonNode(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        return await self._change_node(
            request.node_id,
            "NodeUncordoned",
            lambda node: upkeep.uncordon(node, now=self._clock.now()),
        )

    async def DrainNode(
        self, request: control_pb2.DrainNodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        seconds = request.deadline_seconds
        if not 0 <= seconds <= DRAIN_SECONDS_MAX:
            raise InvalidError(
                "deadline_seconds", f"{seconds} is not allowed; use 0 to {DRAIN_SECONDS_MAX}"
            )
        deadline = timedelta(seconds=seconds) if seconds else None
        return await self._change_node(
            request.node_id,
            "NodeDrainAsked",
            lambda node: upkeep.drain(node, deadline=deadline, now=self._clock.now()),
        )

    async def ConfirmNodeDead(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        return await self._change_node(
            request.node_id,
            "NodeConfirmedDead",
            lambda node: upkeep.confirm_dead(node, now=self._clock.now()),
        )

    async def RemoveNode(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        _need(request.node_id, "node_id")
        try:
            await self._membership.remove(node_id(request.node_id))
        except PersysError as err:
            return control_pb2.NodeAnswer(accepted=False, reason=str(err))
        return control_pb2.NodeAnswer(accepted=True)

    async def _change_node(
        self, wanted: str, kind: str, make: Callable[[Node], Node]
    ) -> control_pb2.NodeAnswer:
        _need(wanted, "node_id")
        try:
            await self._membership.change(node_id(wanted), kind, make)
        except PersysError as err:
            return control_pb2.NodeAnswer(accepted=False, reason=str(err))
        return control_pb2.NodeAnswer(accepted=True, node=self._queries.get_node(wanted))

    async def ListNodes(
        self, request: control_pb2.ListNodesRequest, context: Context
    ) -> control_pb2.ListNodesResponse:
        return control_pb2.ListNodesResponse(nodes=self._queries.list_nodes(request.status))

    async def GetNode(
        self, request: control_pb2.GetNodeRequest, context: Context
    ) -> control_pb2.GetNodeResponse:
        _need(request.node_id, "node_id")
        return control_pb2.GetNodeResponse(node=self._queries.get_node(request.node_id))

    async def ListWorkloads(
        self, request: control_pb2.ListWorkloadsRequest, context: Context
    ) -> control_pb2.ListWorkloadsResponse:
        return control_pb2.ListWorkloadsResponse(
            workloads=self._queries.list_workloads(node_id=request.node_id, status=request.status)
        )

    async def GetWorkload(
        self, request: control_pb2.GetWorkloadRequest, context: Context
    ) -> control_pb2.GetWorkloadResponse:
        _need(request.workload_id, "workload_id")
        return control_pb2.GetWorkloadResponse(
            workload=self._queries.get_workload(request.workload_id)
        )

    async def GetClusterSummary(
        self, request: control_pb2.GetClusterSummaryRequest, context: Context
    ) -> control_pb2.GetClusterSummaryResponse:
        return self._queries.summary()

    def _node(self, request: control_pb2.RegisterNodeRequest) -> Node:
        now = self._clock.now()
        if not request.grpc_endpoint:
            raise InvalidError("grpc_endpoint", "is missing; expected host:port of the agent")
        capabilities = control.capabilities(request.capabilities, request.features)
        _check_room(capabilities)
        return Node(
            id=node_id(request.node_id),
            capabilities=capabilities,
            endpoint=request.grpc_endpoint,
            registered_at=now,
            status_reason="registered",
            status_at=now,
            labels=dict(request.labels),
            agent_version=request.agent_version,
            cluster_id=request.cluster_id,
        )


_METHODS = (
    "RegisterNode",
    "Heartbeat",
    "ApplyWorkload",
    "DeleteWorkload",
    "RetryWorkload",
    "ListNodes",
    "GetNode",
    "ListWorkloads",
    "GetWorkload",
    "GetClusterSummary",
    "CordonNode",
    "UncordonNode",
    "DrainNode",
    "ConfirmNodeDead",
    "RemoveNode",
)


def _skew(request: control_pb2.HeartbeatRequest, now: datetime) -> timedelta:
    """How far the sender's clock is ahead; nothing if it does not tell the time."""
    told = control.instant(request.timestamp) if request.HasField("timestamp") else None
    return told - now if told is not None else timedelta()


def _need(value: str, field: str) -> None:
    if not value:
        raise InvalidError(field, "is missing")


def _check_room(has: Capabilities) -> None:
    """A node with nothing to give would count as the emptiest of all."""
    kept = has.reserved
    for total_field, total, reserved_field, reserved in (
        (
            "cpu_total_millicores",
            has.cpu_millicores,
            "reserved_cpu_millicores",
            kept.cpu_millicores,
        ),
        ("memory_total_mb", has.memory_mb, "reserved_memory_mb", kept.memory_mb),
    ):
        if total == 0:
            raise InvalidError(f"capabilities.{total_field}", "is 0; expected what the node has")
        if reserved >= total:
            raise InvalidError(
                f"capabilities.{reserved_field}",
                f"is {reserved}; expected less than the {total} it has",
            )


def _measured(
    name: str,
    method: Callable[[Request, Context], Awaitable[Answer]],
    metrics: Metrics,
    clock: Clock,
) -> Callable[[Request, Context], Awaitable[Answer]]:
    """Count and time a method, and turn what it raises into a status."""
    answered = metrics.requests.labels(name, "OK")
    seconds = metrics.seconds.labels(name)

    async def measured(request: Request, context: Context) -> Answer:
        began = clock.monotonic()
        try:
            answer = await method(request, context)
        except PersysError as err:
            code = status.grpc_code(err)
            metrics.requests.labels(name, code.name).inc()
            await context.abort(code, str(err))
        answered.inc()
        seconds.observe(clock.monotonic() - began)
        return answer

    return measured
