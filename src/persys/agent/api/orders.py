"""The apply RPCs: one order, or a batch.

Each order of a batch is accepted or refused alone, and has the same effect as an order of its own. The
journal entries of a batch are written in one transaction. An order that is not stored within `ORDER_SECONDS`
does not delay the results of the others: its result is an error, and the order continues.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial

import grpc
from msgspec.structs import replace

from persys.agent.journal.records import Entry
from persys.agent.journal.shared_commit import Commit, SharedCommit
from persys.agent.journal.store import Journal
from persys.agent.node.usage import WorkloadUsageSampler
from persys.agent.uplink.heartbeat import Refusals, observation_of
from persys.agent.workloads.orders import Accepted, OrderService, Refused, Skipped
from persys.core.secrets import redacted
from persys.errors import InvalidError, PersysError, StaleEpochError
from persys.infra.aio.offload import off_loop
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.message_sizes import MESSAGE_BYTES_MAX
from persys.model.ids import NodeId, Revision, WorkloadId, workload_id
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Desired, Order
from persys.wire.agent import messages as wire
from persys.wire.errors import grpc_code
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.limits.table import ORDERS_MAX

ORDER_SECONDS = 5.0  # less than the deadline of a call of the scheduler
RESULTS_BYTES_MAX = MESSAGE_BYTES_MAX // 2


class OrderApi:
    def __init__(
        self,
        node_id: NodeId,
        *,
        journal: Journal,
        orders: OrderService,
        usage_sampler: WorkloadUsageSampler,
        clock: Clock,
        supervisor: Supervisor,
        refusals: Refusals,
    ) -> None:
        self._node_id = node_id
        self._journal = journal
        self._orders = orders
        self._usage_sampler = usage_sampler
        self._clock = clock
        self._supervisor = supervisor
        self._refusals = refusals

    async def apply(
        self,
        request: agent_pb2.ApplyWorkloadRequest,
        *,
        commit: Commit | None = None,
        deadline_seconds: float = 0,
    ) -> agent_pb2.ApplyWorkloadResponse:
        """Raises InvalidError for an invalid id, UnavailableError."""
        workload_id(request.id, field="id")
        try:
            order = await _order(request)
        except InvalidError as err:
            failure = Failure(FailureReason.INVALID_SPEC, str(err), retryable=False)
            return self._refused(request, failure)
        try:
            taken = await self._orders.apply(
                order, intent=request.intent, commit=commit, deadline_seconds=deadline_seconds
            )
        except StaleEpochError as err:
            return agent_pb2.ApplyWorkloadResponse(
                message=str(err), known_epoch=err.known_epoch, deleted=err.deleted
            )
        if not isinstance(taken, Refused):
            self._refusals.drop(request.id)
        match taken:
            case Accepted(entry=entry):
                return agent_pb2.ApplyWorkloadResponse(
                    applied=True, message="accepted", status=self.status(entry)
                )
            case Skipped(entry=entry):
                return agent_pb2.ApplyWorkloadResponse(
                    applied=True,
                    skipped=True,
                    message=f"revision {entry.order.revision} is already applied",
                    status=self.status(entry),
                )
            case Refused(failure=failure):
                return self._refused(request, failure)

    async def apply_all(
        self, requests: Sequence[agent_pb2.ApplyWorkloadRequest]
    ) -> agent_pb2.ApplyWorkloadsResponse:
        """Raises InvalidError if there are too many orders."""
        if len(requests) > ORDERS_MAX:
            raise InvalidError(
                "orders", f"has {len(requests)} entries; expected at most {ORDERS_MAX}"
            )
        shared = SharedCommit(self._journal.commit, len(requests))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._result(request, shared)) for request in requests]
        return agent_pb2.ApplyWorkloadsResponse(results=_bounded([task.result() for task in tasks]))

    async def _result(
        self, request: agent_pb2.ApplyWorkloadRequest, shared: SharedCommit
    ) -> agent_pb2.ApplyResult:
        """The result of one order of a batch. An unexpected exception affects this order only."""
        errors: list[InternalError] = []
        with (
            shared.part() as commit,
            self._supervisor.contain("call", request.id, failed=errors.append),
        ):
            try:
                response = await self.apply(request, commit=commit, deadline_seconds=ORDER_SECONDS)
                return agent_pb2.ApplyResult(id=request.id, response=response)
            except PersysError as err:
                return _error(request.id, grpc_code(err), str(err))
        return _error(request.id, grpc.StatusCode.INTERNAL, f"internal error: {errors[0].text}")

    def status(self, entry: Entry) -> agent_pb2.WorkloadStatus:
        return wire.status_message(
            observation_of(entry, self._journal, self._node_id, self._orders.policy),
            type=entry.order.type,
            desired=entry.order.desired,
            created_at=entry.created_at,
            updated_at=entry.updated_at,
            usage=self._usage_sampler.usage.get(entry.order.workload_id),
        )

    def _refused(
        self, request: agent_pb2.ApplyWorkloadRequest, failure: Failure
    ) -> agent_pb2.ApplyWorkloadResponse:
        failure = replace(failure, message=redacted(failure.message, wire.secret_values(request)))
        status = _refusal_status(request, failure, self._node_id, self._clock.now())
        self._refusals.note(status)
        return agent_pb2.ApplyWorkloadResponse(message=failure.message, status=status)


async def _order(request: agent_pb2.ApplyWorkloadRequest) -> Order:
    """Specs that contain YAML are parsed outside the event loop. Raises InvalidError."""
    if request.spec.HasField("container"):
        return wire.apply(request)
    return await off_loop(partial(wire.apply, request))


def _error(order_id: str, code: grpc.StatusCode, text: str) -> agent_pb2.ApplyResult:
    return agent_pb2.ApplyResult(id=order_id, code=code.value[0], error=text)


def _bounded(results: Sequence[agent_pb2.ApplyResult]) -> list[agent_pb2.ApplyResult]:
    """Results beyond the size of a message become errors: the scheduler sends these orders again, alone."""
    size, kept = 0, list[agent_pb2.ApplyResult]()
    for result in results:
        size += result.ByteSize()
        if size > RESULTS_BYTES_MAX:
            result = _error(result.id, grpc.StatusCode.UNAVAILABLE, "the results are too large")
        kept.append(result)
    return kept


def _refusal_status(
    request: agent_pb2.ApplyWorkloadRequest, failure: Failure, node_id: NodeId, now: datetime
) -> agent_pb2.WorkloadStatus:
    """The status of a refused order. Metadata marks it, because this node has no such workload."""
    seen = Observation(
        WorkloadId(request.id),
        node_id,
        Actual.FAILED,
        now,
        revision=Revision(request.revision_id),
        epoch=request.epoch,
        failure=failure,
        message=failure.message,
        metadata={wire.REFUSED: "true"},
    )
    kind = wire.workload_type(request.type) or WorkloadType.CONTAINER
    return wire.status_message(seen, type=kind, desired=Desired.RUNNING)
