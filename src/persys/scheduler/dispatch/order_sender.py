"""Sends apply orders to agents, one at a time or several in one message, and reads their replies.

A batch is split by size. Its orders are answered one by one: a refusal or a missing reply of one order does
not affect the others. If an agent refuses a batch as a whole, its orders are sent one at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import grpc
from google.protobuf.message import Message
from msgspec import structs

from persys.core.reconcile.situation import RUNTIME_NOT_AVAILABLE
from persys.core.recovery.rollback import ALREADY_DELETED, STALE_EPOCH
from persys.core.secrets import Resolved, redacted
from persys.errors import AgentUnreachableError, InvalidError, PersysError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.rpc.message_sizes import MESSAGE_BYTES_MAX
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Workload
from persys.wire import errors as wire_errors
from persys.wire.agent import legacy_agents
from persys.wire.agent import messages as agent_messages
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.limits.table import ORDERS_MAX

BATCH_BYTES_MAX = MESSAGE_BYTES_MAX // 2

# The spec with resolved secret values, or why they cannot be resolved.
Resolve = Callable[[Workload], Awaitable[Resolved | Failure]]
# Node, endpoint, method and request of a call.
Call = Callable[[NodeId, str, str, Message], Awaitable[Any]]
Result = Observation | UnavailableError
_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def no_secrets(workload: Workload) -> Resolved:
    """Used where specs refer to no secrets."""
    return Resolved(workload.spec)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An order that is ready to be sent."""

    workload: Workload
    epoch: int
    request: agent_pb2.ApplyWorkloadRequest


class OrderSender:
    def __init__(
        self,
        clock: Clock,
        *,
        call: Call,
        send_plain: Callable[[NodeId, str, Workload], Awaitable[bool]],
        prove: Callable[[WorkloadId, NodeId, int], bytes],
        resolve: Resolve,
    ) -> None:
        """`send_plain` sends an order without a reply, and returns whether the agent accepts only such."""
        self._clock = clock
        self._call = call
        self._send_plain = send_plain
        self._prove = prove
        self._resolve = resolve

    async def apply(
        self, node_id: NodeId, endpoint: str, workload: Workload, epoch: int
    ) -> Observation:
        sent_at = self._clock.now()
        resolved = await self._resolve(workload)
        if isinstance(resolved, Failure):
            return _failed(workload, node_id, epoch, sent_at, resolved)
        plain = structs.replace(workload, spec=resolved.spec)
        if await self._send_plain(node_id, endpoint, plain):
            # The agent's heartbeats report the result.
            return Observation(workload.id, node_id, Actual.PENDING, self._clock.now(), epoch=epoch)
        return await self._send(
            node_id, endpoint, self._prepared(node_id, workload, epoch, resolved)
        )

    async def apply_all(
        self, node_id: NodeId, endpoint: str, orders: Sequence[tuple[Workload, int]]
    ) -> list[Result]:
        """For agents that accept batches. The results have the sequence of the orders."""
        sent_at = self._clock.now()
        async with asyncio.TaskGroup() as group:
            resolving = [group.create_task(self._resolved(one)) for one, _ in orders]
        results: dict[WorkloadId, Result] = {}
        prepared: list[_Prepared] = []
        for (workload, epoch), task in zip(orders, resolving, strict=True):
            resolved = task.result()
            if isinstance(resolved, Failure):
                results[workload.id] = _failed(workload, node_id, epoch, sent_at, resolved)
            else:
                prepared.append(self._prepared(node_id, workload, epoch, resolved))
        for batch in _batches(prepared):
            results |= await self._send_all(node_id, endpoint, batch)
        return [results[workload.id] for workload, _ in orders]

    async def _resolved(self, workload: Workload) -> Resolved | Failure:
        return await self._resolve(workload)

    def _prepared(
        self, node_id: NodeId, workload: Workload, epoch: int, resolved: Resolved
    ) -> _Prepared:
        proof = self._prove(workload.id, node_id, epoch)
        request = agent_messages.apply_message(workload, epoch, resolved, proof=proof)
        return _Prepared(workload, epoch, request)

    async def _send_all(
        self, node_id: NodeId, endpoint: str, batch: Sequence[_Prepared]
    ) -> dict[WorkloadId, Result]:
        if len(batch) > 1:
            request = agent_pb2.ApplyWorkloadsRequest(orders=[order.request for order in batch])
            try:
                answer = await self._call(node_id, endpoint, "ApplyWorkloads", request)
            except UnavailableError as err:
                return {order.workload.id: err for order in batch}
            except PersysError:
                pass  # the agent is of an older version by now, or refuses the batch as a whole
            else:
                found = {result.id: result for result in answer.results}
                return {order.workload.id: self._result(order, node_id, found) for order in batch}
        return {
            order.workload.id: await self._send_single(node_id, endpoint, order) for order in batch
        }

    async def _send_single(self, node_id: NodeId, endpoint: str, order: _Prepared) -> Result:
        try:
            return await self._send(node_id, endpoint, order)
        except UnavailableError as err:
            return err

    async def _send(self, node_id: NodeId, endpoint: str, order: _Prepared) -> Observation:
        """Raises UnavailableError."""
        try:
            answer = await self._call(node_id, endpoint, "ApplyWorkload", order.request)
        except UnavailableError:
            raise
        except PersysError as err:
            return self._refused(order, node_id, err)
        return self._answered(order, node_id, answer)

    def _result(
        self, order: _Prepared, node_id: NodeId, found: Mapping[str, agent_pb2.ApplyResult]
    ) -> Result:
        """The result of one order of a batch, as if it had been sent alone."""
        result = found.get(order.workload.id)
        if result is None:
            return AgentUnreachableError(f"{node_id} sent no result for {order.workload.id}")
        if not result.code:
            return self._answered(order, node_id, result.response)
        code = _CODES.get(result.code, grpc.StatusCode.UNKNOWN)
        err = wire_errors.error_from(code, result.error)
        if isinstance(err, UnavailableError):
            return AgentUnreachableError(f"{code.name}: {result.error}")
        return self._refused(order, node_id, err)

    def _refused(self, order: _Prepared, node_id: NodeId, err: PersysError) -> Observation:
        refusal = _refusal(err, agent_messages.secret_values(order.request))
        return _failed(order.workload, node_id, order.epoch, self._clock.now(), refusal)

    def _answered(
        self, order: _Prepared, node_id: NodeId, answer: agent_pb2.ApplyWorkloadResponse
    ) -> Observation:
        _mask_secrets(answer, agent_messages.secret_values(order.request))
        now = self._clock.now()
        if answer.applied or answer.skipped:
            return agent_messages.observation(answer.status, node_id, now)
        return Observation(
            order.workload.id,
            node_id,
            Actual.FAILED,
            now,
            order.workload.revision,
            order.epoch,
            _refusal_in(answer, node_id, now),
            answer.message,
            known_epoch=answer.known_epoch,
        )


def _batches(orders: Sequence[_Prepared]) -> Iterator[Sequence[_Prepared]]:
    """Batches within the limits of a message. An order beyond them is alone in its batch."""
    batch: list[_Prepared] = []
    size = 0
    for order in orders:
        more = order.request.ByteSize()
        if batch and (size + more > BATCH_BYTES_MAX or len(batch) >= ORDERS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(order)
        size += more
    if batch:
        yield batch


def _refusal_in(answer: agent_pb2.ApplyWorkloadResponse, node_id: NodeId, now: datetime) -> Failure:
    if answer.known_epoch:
        code = ALREADY_DELETED if answer.deleted else STALE_EPOCH
        return Failure(FailureReason.RUNTIME_ERROR, answer.message, code=code)
    if legacy_agents.says_runtime_not_available(answer.message):
        return Failure(
            FailureReason.INSUFFICIENT_RESOURCES, answer.message, code=RUNTIME_NOT_AVAILABLE
        )
    reported = None
    if answer.HasField("status"):
        reported = agent_messages.observation(answer.status, node_id, now).failure
    return reported or legacy_agents.failure("", answer.message, code="", terminal=False)


def _failed(
    workload: Workload, node_id: NodeId, epoch: int, at: datetime, failure: Failure
) -> Observation:
    return Observation(
        workload.id, node_id, Actual.FAILED, at, workload.revision, epoch, failure, failure.message
    )


def _mask_secrets(answer: agent_pb2.ApplyWorkloadResponse, values: Collection[str]) -> None:
    """Masks secret values: a third-party agent may repeat them in its reply."""
    if not values:
        return
    answer.message = redacted(answer.message, values)
    if answer.HasField("status"):
        answer.status.message = redacted(answer.status.message, values)
        for name, text in dict(answer.status.metadata).items():
            answer.status.metadata[name] = redacted(text, values)


def _refusal(err: PersysError, values: Collection[str]) -> Failure:
    """An invalid field is final; any other refusal, such as of an old epoch, is retried."""
    text = redacted(str(err), values)
    if isinstance(err, InvalidError):
        return Failure(FailureReason.INVALID_SPEC, text, retryable=False)
    return Failure(FailureReason.RUNTIME_ERROR, text)
