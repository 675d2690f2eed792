"""Calls to agents: over the control stream that a node has opened, else over a pooled channel.

Channels stay open, and each call has a deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import grpc
import structlog
from google.protobuf.message import Message

from persys.core.reconcile.effects import Remove
from persys.errors import (
    AgentUnreachableError,
    InvalidError,
    NotFoundError,
    PersysError,
    RefusedError,
    UnavailableError,
)
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.grpc_server import new_channel
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX, MESSAGE_BYTES_MAX
from persys.infra.rpc.parsed_replies import parsed
from persys.infra.telemetry import tracing
from persys.model.action import ACTIONS_MAX, Action
from persys.model.ids import NodeId, WorkloadId
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Observation
from persys.model.workload import StoredIntent, Workload
from persys.scheduler.dispatch.order_sender import OrderSender, Resolve, no_secrets
from persys.scheduler.dispatch.tunnel import Tunnel, Tunnels
from persys.scheduler.membership.heartbeat import ReportLimits
from persys.scheduler.metrics.counters import Metrics
from persys.wire import errors as wire_errors
from persys.wire.agent import legacy_agents
from persys.wire.agent import messages as agent_messages
from persys.wire.control import spec_encode
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check

SERVICE = "persys.agent.v1.AgentService"
NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class Outgoing:
    def __init__(
        self, metrics: Metrics, clock: Clock, *, reached: Callable[[NodeId, str], None]
    ) -> None:
        """`reached` is called with each node that was called and the problem if it did not reply, else ""."""
        self._reached = reached
        self._metrics = metrics
        self._clock = clock
        self._unanswered: dict[NodeId, int] = {}

    def unanswered(self, node_id: NodeId) -> int:
        return self._unanswered.get(node_id, 0)

    def forget(self, node_id: NodeId) -> None:
        self._unanswered.pop(node_id, None)

    @contextmanager
    def call(
        self, node_id: NodeId, method: str, *, lasts: bool = False
    ) -> Iterator[tracing.Headers]:
        """Yields the metadata of the call, which continues the trace in the agent.

        A call that `lasts` (a stream without a deadline) is counted but not timed.
        """
        began = self._clock.monotonic()
        code = grpc.StatusCode.UNKNOWN
        with tracing.client_span(f"{SERVICE}/{method}", node_id=node_id) as span:
            try:
                yield span.headers
                code = grpc.StatusCode.OK
            except grpc.aio.AioRpcError as err:
                code = err.code()
                if code is grpc.StatusCode.UNIMPLEMENTED:
                    raise unsupported_by(node_id, method) from err
                error = wire_errors.error_from(code, err.details())
                if isinstance(error, UnavailableError):
                    raise AgentUnreachableError(f"{code.name}: {err.details()}") from err
                raise error from err
            except PersysError as err:
                code = wire_errors.grpc_code(err)
                raise
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            finally:
                seconds = self._clock.monotonic() - began
                self._metrics.sent(method, code.name, None if lasts else seconds)
                self._note(node_id, code)
                span.answered(code.name)

    def _note(self, node_id: NodeId, code: grpc.StatusCode) -> None:
        if code in NO_ANSWER:
            self._unanswered[node_id] = self.unanswered(node_id) + 1
            self._reached(node_id, code.name)
        elif code is not grpc.StatusCode.CANCELLED:
            self._unanswered.pop(node_id, None)
            self._reached(node_id, "")


# Calls that agents of earlier versions do not know, in the words of the user.
_NEW_CALLS = {"PortForward": "port forwarding", "CopyFiles": "copying files"}


def unsupported_by(node_id: NodeId, method: str) -> RefusedError:
    if (what := _NEW_CALLS.get(method)) is not None:
        return RefusedError(f"the agent of node {node_id} does not support {what}: upgrade it")
    return RefusedError(
        f"the agent of node {node_id} does not support {method}: it is an older version or third-party"
    )


log = structlog.get_logger()

PROBE_SECONDS_MAX = 3.0

Stub = agent_pb2_grpc.AgentServiceStub
# Closes a connection. Calls in progress get this many seconds to end; None: they are cancelled at once.
Close = Callable[[float | None], Awaitable[None]]
Connect = Callable[[NodeId, str], tuple[Stub, Close]]
# A streaming call, over gRPC or a control stream: it can be iterated, written to and cancelled.
OpenCall = Callable[..., Any]

INTENTS_MAX = 10_000  # of one node


def connect_over_grpc(node_id: NodeId, endpoint: str) -> tuple[Stub, Close]:
    channel = new_channel(endpoint, answer_bytes_max=MESSAGE_BYTES_MAX)
    return Stub(parsed(channel)), channel.close


class AgentClient:
    def __init__(
        self,
        clock: Clock,
        streams: Tunnels,
        metrics: Metrics,
        *,
        deadline: timedelta,
        supervisor: Supervisor,
        limited: ReportLimits,
        reached: Callable[[NodeId, str], None],
        prove: Callable[[WorkloadId, NodeId, int], bytes],
        connect: Connect = connect_over_grpc,
        connect_by_host: Connect = connect_over_grpc,
        is_known_by_host: Callable[[NodeId], bool] = lambda _node_id: False,
        resolve: Resolve = no_secrets,
    ) -> None:
        """`limited` records which fields of the replies exceeded a limit.

        `is_known_by_host` is true for nodes whose certificate names only the host: they are called with
        `connect_by_host`.
        `reached` is called with each node that was called and the problem if it did not reply, else "".
        `prove` creates the proof that is sent with an order.
        """
        self._clock = clock
        self._streams = streams
        self._deadline = deadline.total_seconds()
        self._supervisor = supervisor
        self._limited = limited
        self._connect = connect
        self._connect_by_host = connect_by_host
        self._is_known_by_host = is_known_by_host
        self._pool: dict[NodeId, tuple[str, Stub, Close]] = {}
        self._unused: list[Close] = []
        self._has_unused = asyncio.Event()
        self._outgoing = Outgoing(metrics, clock, reached=reached)
        self.unanswered = self._outgoing.unanswered
        self._orders = OrderSender(
            clock, call=self._call, send_plain=self._send_plain, prove=prove, resolve=resolve
        )

    async def apply(
        self, node_id: NodeId, endpoint: str, workload: Workload, epoch: int
    ) -> Observation:
        return await self._orders.apply(node_id, endpoint, workload, epoch)

    async def apply_all(
        self, node_id: NodeId, endpoint: str, orders: Sequence[tuple[Workload, int]]
    ) -> list[Observation | UnavailableError]:
        return await self._orders.apply_all(node_id, endpoint, orders)

    async def remove(self, removal: Remove, endpoint: str) -> None:
        node_id, workload_id = removal.node_id, removal.workload_id
        if (plain := self._plain_stream(node_id, endpoint)) is not None:
            gone = control_pb2.DeleteWorkloadRequest(workload_id=workload_id)
            with self._outgoing.call(node_id, "DeleteWorkload"):
                message = control_pb2.ControlMessage(delete=gone)
                await plain.send(message, timeout=self._deadline)
            return
        request = agent_pb2.DeleteWorkloadRequest(
            id=workload_id, epoch=removal.epoch, keep_data=removal.keeps_data
        )
        try:
            answer = await self._call(node_id, endpoint, "DeleteWorkload", request)
        except NotFoundError:
            return
        if not answer.success and not legacy_agents.says_not_found(answer.message):
            raise AgentUnreachableError(f"{node_id} refused the delete: {answer.message}")

    async def get_status(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> Observation:
        request = agent_pb2.GetWorkloadStatusRequest(id=workload_id)
        try:
            answer = await self._call(node_id, endpoint, "GetWorkloadStatus", request)
        except NotFoundError:
            return Observation(workload_id, node_id, Actual.ABSENT, self._clock.now())
        if answer.status.metadata.get(agent_messages.REFUSED):
            # The agent stores only that it refused an order; it has no copy.
            return Observation(workload_id, node_id, Actual.ABSENT, self._clock.now())
        return agent_messages.observation(answer.status, node_id, self._clock.now())

    async def actions(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> list[Action]:
        if self._plain_stream(node_id, endpoint) is not None:
            return []
        request = agent_pb2.ListActionsRequest(
            workload_id=workload_id, limit=ACTIONS_MAX, newest_first=True
        )
        answer = await self._call(node_id, endpoint, "ListActions", request)
        found: list[Action] = []
        for message in answer.actions:
            with suppress(InvalidError):  # an action of a kind that only a newer agent knows
                found.append(agent_messages.action(message))
        # Third-party agents may ignore the limit and the order.
        own = (action for action in found if action.workload_id in ("", workload_id))
        return sorted(own, key=lambda action: action.created_at, reverse=True)[:ACTIONS_MAX]

    async def list_workloads(self, node_id: NodeId, endpoint: str) -> list[Observation]:
        request = agent_pb2.ListWorkloadsRequest()
        answer = await self._call(node_id, endpoint, "ListWorkloads", request)
        now = self._clock.now()
        return [agent_messages.observation(found, node_id, now) for found in answer.workloads]

    async def probe(self, node_id: NodeId, endpoint: str) -> frozenset[WorkloadType]:
        if self._plain_stream(node_id, endpoint) is not None:
            return frozenset()  # it accepts orders as long as its stream is open
        deadline = timedelta(seconds=min(self._deadline, PROBE_SECONDS_MAX))
        request = agent_pb2.HealthCheckRequest()
        answer = await self._call(node_id, endpoint, "HealthCheck", request, deadline=deadline)
        return legacy_agents.unhealthy_types(answer.runtime_status)

    async def intents(self, node_id: NodeId, endpoint: str) -> list[StoredIntent]:
        kept: list[StoredIntent] = []
        size = 0
        with self._outgoing.call(node_id, "ListIntents") as headers:
            stream = self._stub(node_id, endpoint).ListIntents(
                agent_pb2.ListIntentsRequest(), timeout=self._deadline, metadata=headers
            )
            try:
                async for message in stream:
                    size += message.ByteSize()
                    if len(kept) >= INTENTS_MAX or size > LIST_BYTES_MAX:
                        raise AgentUnreachableError(
                            f"{node_id} lists too many workloads: expected at most {INTENTS_MAX}, "
                            f"with {LIST_BYTES_MAX} bytes in total"
                        )
                    try:
                        limits_check.check(message)
                        kept.append(agent_messages.intent(message, node_id))
                    except RefusedError as err:
                        log.warning("intent.unreadable", node_id=node_id, reason=str(err))
            except grpc.aio.AioRpcError as err:
                if err.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return []
                raise AgentUnreachableError(f"{err.code().name}: {err.details()}") from err
        return kept

    async def call(
        self,
        node_id: NodeId,
        endpoint: str,
        method: str,
        request: Message,
        *,
        deadline: timedelta | None = None,
    ) -> Any:
        """A call that only Persys agents support. Raises RefusedError if this agent does not."""
        if self._plain_stream(node_id, endpoint) is not None:
            raise unsupported_by(node_id, method)
        return await self._call(node_id, endpoint, method, request, deadline=deadline)

    @contextmanager
    def stream(self, node_id: NodeId, endpoint: str, method: str) -> Iterator[OpenCall]:
        """Opens a streaming call without a deadline. Failures inside the block are raised as PersysError."""
        with self._outgoing.call(node_id, method, lasts=True) as headers:
            if self._plain_stream(node_id, endpoint) is not None:
                raise unsupported_by(node_id, method)
            yield partial(getattr(self._stub(node_id, endpoint), method), metadata=headers)

    def node_changed(self, node_id: NodeId, endpoint: str | None) -> None:
        """The node has this endpoint now; None: it was removed. Connections to other endpoints are closed."""
        pooled = self._pool.get(node_id)
        if pooled is not None and pooled[0] != endpoint:
            self._retire(node_id)
        if endpoint is None:
            self._outgoing.forget(node_id)

    def _retire(self, node_id: NodeId) -> None:
        _, _, close = self._pool.pop(node_id)
        self._unused.append(close)
        self._has_unused.set()

    async def run(self) -> None:
        """Close connections that are no longer used, as soon as the calls in progress have ended."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._has_unused.wait()
                self._has_unused.clear()
                unused, self._unused = self._unused, []
                for close in unused:
                    group.create_task(self._close(close))

    async def _close(self, close: Close) -> None:
        with self._supervisor.contain("channels", "", failed=_ignore):
            await close(self._deadline)

    async def close(self) -> None:
        for node_id in list(self._pool):
            self._retire(node_id)
        while self._unused:
            await self._unused.pop()(None)

    def _plain_stream(self, node_id: NodeId, endpoint: str) -> Tunnel | None:
        """The stream of an agent that has no endpoint and accepts no calls on its stream."""
        tunnel = self._streams.get(node_id)
        return tunnel if tunnel is not None and not tunnel.takes_calls and not endpoint else None

    async def _send_plain(self, node_id: NodeId, endpoint: str, workload: Workload) -> bool:
        if (stream := self._plain_stream(node_id, endpoint)) is None:
            return False
        order = spec_encode.apply_message(workload)
        with self._outgoing.call(node_id, "ApplyWorkload"):
            message = control_pb2.ControlMessage(apply=order)
            await stream.send(message, timeout=self._deadline)
        return True

    def _stub(self, node_id: NodeId, endpoint: str) -> Stub:
        tunnel = self._streams.get(node_id)
        if tunnel is not None and tunnel.takes_calls:
            return tunnel.stub
        if not endpoint:
            raise AgentUnreachableError(f"{node_id} has no open stream and registered no endpoint")
        pooled = self._pool.get(node_id)
        if pooled is not None and pooled[0] != endpoint:
            self._retire(node_id)
            pooled = None
        if pooled is None:
            connect = self._connect_by_host if self._is_known_by_host(node_id) else self._connect
            stub, close = connect(node_id, endpoint)
            self._pool[node_id] = (endpoint, stub, close)
            return stub
        return pooled[1]

    async def _call(
        self,
        node_id: NodeId,
        endpoint: str,
        method: str,
        request: Message,
        *,
        deadline: timedelta | None = None,
    ) -> Any:
        seconds = self._deadline if deadline is None else deadline.total_seconds()
        with self._outgoing.call(node_id, method) as headers:
            call = getattr(self._stub(node_id, endpoint), method)
            answer = await call(request, timeout=seconds, metadata=headers)
        try:
            self._limited.note(node_id, limits_check.trim(answer))
        except InvalidError as err:
            raise AgentUnreachableError(f"invalid reply from {node_id}: {err}") from err
        return answer


def _ignore(_error: InternalError) -> None:
    """The failure is logged and counted; the connection is no longer used."""
