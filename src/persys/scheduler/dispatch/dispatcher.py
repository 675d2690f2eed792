"""Dispatches effects to nodes: one lane per node, so that a node gets its orders in sequence and a slow node
delays no other. Every reply becomes an observation; a missing reply is recorded and the order is retried. An
effect that raises an unexpected error counts as one without a reply.

Apply orders that follow each other in a lane are sent in one message, to agents that accept batches. After a
missing reply an order is sent alone, so that one order cannot affect the others of its batch again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import assert_never

import structlog
from msgspec import structs

from persys.core.reconcile.dispatch import Dispatch, answered, unanswered
from persys.core.reconcile.effects import (
    Apply,
    Effect,
    FetchActions,
    KeepActions,
    PollStatus,
    Remove,
)
from persys.core.reconcile.task_history import (
    Operation,
    finished,
    is_lost,
    is_unclear,
    result_from_tasks,
)
from persys.errors import AgentUnreachableError, FencedError, PersysError, UnavailableError
from persys.infra.aio.keyed_queue import KeyedQueue
from persys.infra.aio.offload import TimeSlice
from persys.infra.aio.supervisor import Containment, InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.telemetry import tracing
from persys.model import feature
from persys.model.action import Action
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Actual, Observation
from persys.model.workload import Desired
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.ports import Agents
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.wire.agent import legacy_agents
from persys.wire.limits.table import ORDERS_MAX

log = structlog.get_logger()

BACKLOG_MAX = 10_000

Inquired = Callable[[FetchActions, Sequence[Action], str, str], Awaitable[None]]
"""Called with the inquiry, the actions of the node, why there are none, and the problems of the node."""


StoreActions = Callable[[NodeId, WorkloadId, Sequence[Action]], Awaitable[None]]

_ENDED = frozenset({Actual.RUNNING, Actual.STOPPED, Actual.FAILED})


class Dispatcher:
    def __init__(
        self,
        cluster: ClusterState,
        agents: Agents,
        observations: Observations,
        clock: Clock,
        *,
        supervisor: Supervisor,
        wake: Callable[[WorkloadId], None],
        replied: Callable[[WorkloadId], None],
        may_order: Callable[[], bool],
        acknowledged: Callable[[Remove], None],
        inquired: Inquired,
        keep_actions: StoreActions,
    ) -> None:
        """While `may_order` is false, orders are dropped; `resume` repeats them when it is true again.

        `replied` is called after each reply to an apply order.
        `acknowledged` is called for each removal that a node has accepted.
        `inquired` stores the reply of a node about an operation that timed out, `keep_actions` ended tasks.
        """
        self._cluster = cluster
        self._agents = agents
        self._observations = observations
        self._clock = clock
        self._wake = wake
        self._replied = replied
        self._may_order = may_order
        self._acknowledged = acknowledged
        self._inquired = inquired
        self._keep_actions = keep_actions
        self._supervisor = supervisor
        self._queues: KeyedQueue[NodeId] | None = None
        self._backlog: list[Effect] = []
        self._waiting: set[Remove | PollStatus | FetchActions | KeepActions] = set()
        # The last element of a lane, if it consists of orders and has not begun.
        self._gathering: dict[NodeId, list[Apply]] = {}
        self._gathered = 0  # orders that were added to a queued element
        self._dropped: dict[tuple[NodeId, WorkloadId], Apply | Remove] = {}
        self._resumed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._waiting.clear()
            self._gathering.clear()
            self._gathered = 0
            self._queues = KeyedQueue(group, contain=self._contain_lane)
            backlog, self._backlog = self._backlog, []
            for effect in backlog:
                self.submit(effect)
            try:
                while True:  # until cancelled, together with the queues
                    await self._resumed.wait()
                    self._resumed.clear()
                    await self._repeat_dropped()
            finally:
                self._queues = None

    def submit(self, effect: Effect) -> None:
        if self._queues is None:
            self._hold_back(effect)
            return
        if isinstance(effect, Apply):
            self._gather(self._queues, effect)
            return
        # The same poll or removal is already queued behind a slow call: once is enough.
        if effect in self._waiting:
            return
        self._waiting.add(effect)
        self._gathering.pop(effect.node_id, None)  # later orders are sent after this effect
        self._queues.submit(effect.node_id, tracing.bind_span(lambda: self._perform(effect)))

    def _gather(self, queues: KeyedQueue[NodeId], effect: Apply) -> None:
        """Add an order to the last element of its lane, or queue a new element."""
        node_id = effect.node_id
        orders = self._gathering.get(node_id)
        if orders is not None and len(orders) < ORDERS_MAX:
            orders.append(effect)
            self._gathered += 1
            return
        self._gathering[node_id] = orders = [effect]
        queues.submit(node_id, tracing.bind_span(partial(self._perform_orders, node_id, orders)))

    def resume(self) -> None:
        """Orders may be allowed again: repeat the dropped ones."""
        if self._dropped and self._may_order():
            self._resumed.set()

    async def _repeat_dropped(self) -> None:
        """In slices: there may be thousands. A workload is decided again, a stale copy is removed."""
        dropped, self._dropped = self._dropped, {}
        slices = TimeSlice(self._clock)
        for (node_id, workload_id), effect in dropped.items():
            await slices.between()
            stale = self._cluster.tombstones.get(node_id, {})
            if isinstance(effect, Remove) and workload_id in stale:
                self.submit(effect)
            else:
                self._wake(workload_id)

    def _hold_back(self, effect: Effect) -> None:
        """Queue until the queues run. Beyond the bound an effect counts as never sent."""
        if len(self._backlog) < BACKLOG_MAX:
            self._backlog.append(effect)
        elif isinstance(effect, Apply | Remove):
            self._drop(effect)

    def depth(self) -> int:
        return self._queues.depth() + self._gathered if self._queues else 0

    def _contain_lane(self, node_id: NodeId) -> Containment:
        """Contains failures outside the containment of the single effect."""
        return self._supervisor.contain("orders", node_id, failed=_ignore, expects=FencedError)

    async def _perform_orders(self, node_id: NodeId, orders: list[Apply]) -> None:
        if self._gathering.get(node_id) is orders:
            del self._gathering[node_id]
        self._gathered -= len(orders) - 1
        batch = self._batch_of(node_id, orders)
        if batch:
            with self._supervisor.contain(
                "orders",
                node_id,
                failed=lambda error: self._note_failures(batch, error),
                expects=FencedError,
            ):
                await self._send_batch(node_id, batch)
        for effect in orders:
            if effect not in batch:
                await self._perform(effect)

    def _batch_of(self, node_id: NodeId, orders: Sequence[Apply]) -> list[Apply]:
        """The orders that are sent together. An order that had no reply before is sent alone."""
        member = self._cluster.nodes.get(node_id)
        if member is None or feature.ORDER_BATCHES not in member.node.capabilities.features:
            return []
        batch: dict[WorkloadId, Apply] = {}
        for effect in orders:
            entry = self._cluster.workloads.get(effect.workload.id)
            if entry is None or not _still_wanted(entry, effect):
                continue
            if entry.dispatch is not None and not entry.dispatch.unanswered_count:
                batch[effect.workload.id] = effect
        return [*batch.values()] if len(batch) > 1 and self._may_order() else []

    async def _perform(self, effect: Effect) -> None:
        if not isinstance(effect, Apply):
            if effect not in self._waiting:
                return  # a removal before it in the queue has polled the status
            self._waiting.discard(effect)
        with self._supervisor.contain(
            "orders",
            f"{effect.node_id}/{_workload_of(effect)}",
            failed=partial(self._note_failure, effect),
            expects=FencedError,
        ):
            await self._send(effect)

    async def _send(self, effect: Effect) -> None:
        member = self._cluster.nodes.get(effect.node_id)
        if member is None:
            return
        if not self._may_order() and isinstance(effect, Apply | Remove):
            self._dropped[effect.node_id, _workload_of(effect)] = effect
            self._drop(effect)
            return
        endpoint = member.node.endpoint
        match effect:
            case Apply():
                await self._apply(effect, endpoint)
            case Remove():
                await self._remove(effect, endpoint)
            case PollStatus():
                await self._request_status(effect, endpoint)
            case FetchActions():
                await self._inquire(effect, endpoint)
            case KeepActions():
                await self._fetch_ended(effect, endpoint)
            case unreachable:
                assert_never(unreachable)

    def _drop(self, effect: Apply | Remove) -> None:
        """Reset the dispatch: the effect counts as never sent."""
        entry = self._cluster.workloads.get(_workload_of(effect))
        if entry is not None and entry.dispatch is not None and entry.dispatch.in_flight:
            entry.dispatch = None

    def _note_failure(self, effect: Effect, error: InternalError) -> None:
        """A poll is repeated at the next reconciliation; an order is sent again after its back-off."""
        entry = self._cluster.workloads.get(_workload_of(effect))
        if entry is None or entry.dispatch is None or not entry.dispatch.in_flight:
            return
        if isinstance(effect, Apply | Remove):
            problem = f"internal error: {error.text}"
            entry.dispatch = unanswered(entry.dispatch, problem, now=self._clock.now())
            self._wake(entry.workload.id)

    def _note_failures(self, effects: Sequence[Apply], error: InternalError) -> None:
        for effect in effects:
            self._note_failure(effect, error)

    async def _send_batch(self, node_id: NodeId, effects: Sequence[Apply]) -> None:
        endpoint = self._cluster.nodes[node_id].node.endpoint
        sending = [found for effect in effects if (found := self._begin(effect)) is not None]
        orders = [(effect.workload, effect.epoch) for effect, _, _ in sending]
        results = await self._agents.apply_all(node_id, endpoint, orders)
        for (effect, entry, sent), result in zip(sending, results, strict=True):
            if isinstance(result, UnavailableError):
                self._note_no_reply(entry, sent, effect.workload.id, result)
            else:
                self._take_reply(effect, entry, sent, result)

    async def _apply(self, effect: Apply, endpoint: str) -> None:
        if (begun := self._begin(effect)) is None:
            return
        _, entry, sent = begun
        workload = effect.workload
        try:
            seen = await self._agents.apply(effect.node_id, endpoint, workload, effect.epoch)
        except AgentUnreachableError as err:
            self._note_no_reply(entry, sent, workload.id, err)
            return
        self._take_reply(effect, entry, sent, seen)

    def _begin(self, effect: Apply) -> tuple[Apply, WorkloadState, Dispatch] | None:
        """Date the dispatch of an order. None: the order is not wanted any more."""
        entry = self._cluster.workloads.get(effect.workload.id)
        if entry is None or not _still_wanted(entry, effect):
            return None
        assert entry.dispatch is not None
        entry.dispatch = sent = replace(entry.dispatch, sent_at=self._clock.now())
        return effect, entry, sent

    def _take_reply(
        self, effect: Apply, entry: WorkloadState, sent: Dispatch, seen: Observation
    ) -> None:
        workload = effect.workload
        task_id = seen.metadata.get("task_id", "")
        if entry.dispatch is sent:
            refused = seen.actual is Actual.FAILED
            entry.dispatch = answered(sent, now=self._clock.now(), task_id=task_id, refused=refused)
        log.info(
            "workload.sent",
            workload_id=workload.id,
            node_id=effect.node_id,
            revision=workload.revision,
            epoch=effect.epoch,
            desired=workload.desired,
            requested_at=sent.sent_at.isoformat(),
            task_id=task_id,
            answer=seen.actual,
            text=seen.message,
        )
        # The reply is dated with the time of sending: observations received since are newer.
        if seen.actual is not Actual.FAILED:
            seen = _at(seen, sent.sent_at)
            _note_revision(entry, seen)
        elif entry.dispatch is not None and entry.dispatch.goal == sent.goal:
            entry.refusal = seen
        self._observations.take(seen, wakes=False)
        self._replied(workload.id)

    async def _remove(self, effect: Remove, endpoint: str) -> None:
        entry = self._cluster.workloads.get(effect.workload_id)
        if entry is not None and _was_replaced(entry, effect):
            return
        requested_at = self._clock.now()
        sent = None
        if (
            entry is not None
            and entry.dispatch is not None
            and entry.assignment is not None
            and entry.assignment.epoch == effect.epoch
        ):
            entry.dispatch = sent = replace(entry.dispatch, sent_at=requested_at)
        try:
            await self._agents.remove(effect, endpoint)
            self._acknowledged(effect)
            if entry is not None and sent is not None and entry.dispatch is sent:
                entry.dispatch = answered(sent, now=self._clock.now())
            poll = PollStatus(effect.node_id, effect.workload_id)
            self._waiting.discard(poll)
            self._note_poll(poll)
            seen = await self._poll_status(effect.node_id, endpoint, effect.workload_id)
        except PersysError as err:
            if entry is not None and sent is not None:
                self._note_no_reply(entry, sent, effect.workload_id, err)
            return
        log.info(
            "workload.removal_sent",
            workload_id=effect.workload_id,
            node_id=effect.node_id,
            revision=entry.workload.revision if entry is not None else "",
            epoch=effect.epoch,
            desired=Desired.DELETED,
            requested_at=requested_at.isoformat(),
            task_id=seen.metadata.get("task_id", ""),
            answer=seen.actual,
            text=seen.message,
        )
        self._observations.take(seen)
        self._wake(effect.workload_id)

    async def _request_status(self, effect: PollStatus, endpoint: str) -> None:
        """The poll is noted before it is sent: a decision during the call must not repeat it."""
        polled_at = self._clock.now()
        self._note_poll(effect)
        try:
            seen = await self._poll_status(effect.node_id, endpoint, effect.workload_id)
        except PersysError:
            return  # polled again later; a node that stays unreachable loses its lease
        entry = self._note_poll(effect)
        if entry is not None:
            _note_revision(entry, seen)
        self._observations.take(seen, polled_at=polled_at)

    def _note_poll(self, effect: PollStatus) -> WorkloadState | None:
        """None: no order of the workload to this node is in progress."""
        entry = self._cluster.workloads.get(effect.workload_id)
        if entry is None or entry.dispatch is None or entry.dispatch.in_flight:
            return None
        if entry.assignment is None or entry.assignment.node_id != effect.node_id:
            return None  # it is about a stale copy, and must not postpone the poll of the new one
        entry.dispatch = replace(entry.dispatch, polled_at=self._clock.now())
        return entry

    async def _poll_status(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> Observation:
        """The status of the workload on the node; its tasks are read if the status is ambiguous."""
        seen = await self._agents.get_status(node_id, endpoint, workload_id)
        sent = self._operation(node_id, workload_id)
        if sent is None:
            return seen
        if not is_unclear(seen, sent):
            await self._keep_tasks(seen, sent, endpoint)
            return seen
        actions: list[Action] = []
        with suppress(PersysError):  # also if the agent does not support this call
            actions = await self._agents.actions(node_id, endpoint, workload_id)
            self._note_loss(workload_id, sent, is_lost(actions, sent))
        ended = result_from_tasks(seen, actions, sent, is_not_found=legacy_agents.says_not_found)
        if ended is None:
            return seen
        if ended.actual is Actual.FAILED:
            cause = seen.failure or legacy_agents.failure("", ended.text, code="", terminal=False)
            seen = structs.replace(seen, failure=cause, message=cause.message)
        seen = structs.replace(seen, actual=ended.actual)
        await self._keep_tasks(seen, sent, endpoint, actions)
        return seen

    def _note_loss(self, workload_id: WorkloadId, sent: Operation, lost: bool) -> None:
        entry = self._cluster.workloads.get(workload_id)
        if entry is None or entry.dispatch is None or entry.dispatch.in_flight:
            return
        if entry.dispatch.goal.desired is sent.desired and entry.dispatch.lost is not lost:
            entry.dispatch = replace(entry.dispatch, lost=lost)

    def _operation(self, node_id: NodeId, workload_id: WorkloadId) -> Operation | None:
        """The last order sent to a node that does not push its status."""
        member, entry = self._cluster.nodes.get(node_id), self._cluster.workloads.get(workload_id)
        if member is None or feature.PUSHES_STATUS in member.node.capabilities.features:
            return None
        if entry is not None and entry.assignment and entry.assignment.node_id == node_id:
            if (sent := entry.dispatch) is None or sent.answered_at is None:
                return None
            sent_at = sent.sent_at + member.clock_skew
            return Operation(sent.goal.desired, sent_at, sent.task_id, sent.goal.revision)
        left = self._cluster.tombstones.get(node_id, {}).get(workload_id)
        if left is None:
            return None
        return Operation(Desired.DELETED, left.deleted_at + member.clock_skew)

    async def _keep_tasks(
        self,
        seen: Observation,
        sent: Operation,
        endpoint: str,
        actions: Sequence[Action] | None = None,
    ) -> None:
        """Store the tasks when the order has ended. A deleted workload has no history."""
        entry = self._cluster.workloads.get(seen.workload_id)
        if entry is None or seen.actual not in _ENDED:
            return
        is_here = entry.assignment is not None and entry.assignment.node_id == seen.node_id
        sent_at = entry.dispatch.sent_at if is_here and entry.dispatch else sent.sent_at
        ended = KeepActions(seen.node_id, seen.workload_id, sent_at)
        await self._fetch_ended(ended, endpoint, actions)

    async def _fetch_ended(
        self, effect: KeepActions, endpoint: str, actions: Sequence[Action] | None = None
    ) -> None:
        """Once per order: a full list of the node may show its end before the poll does."""
        entry = self._cluster.workloads.get(effect.workload_id)
        if entry is None or entry.traced_at == effect.sent_at:
            return
        entry.traced_at = effect.sent_at
        if actions is None:
            actions = []
            with suppress(PersysError):
                actions = await self._agents.actions(effect.node_id, endpoint, effect.workload_id)
        if done := finished(actions):
            await self._keep_actions(effect.node_id, effect.workload_id, done)

    async def _inquire(self, effect: FetchActions, endpoint: str) -> None:
        actions: list[Action] = []
        problem = ""
        try:
            actions = await self._agents.actions(effect.node_id, endpoint, effect.workload_id)
        except PersysError as err:  # also if the agent does not support this call
            problem = str(err)
        await self._inquired(effect, actions, problem, await self._health(effect.node_id, endpoint))

    async def _health(self, node_id: NodeId, endpoint: str) -> str:
        """The problem that the health check of the node reports; "" if healthy or not supported."""
        try:
            unhealthy = await self._agents.probe(node_id, endpoint)
        except AgentUnreachableError as err:
            return f"node {node_id} does not reply to its health check: {err}"
        except PersysError:
            return ""
        if not unhealthy:
            return ""
        return f"node {node_id} reports unhealthy runtimes: {', '.join(sorted(unhealthy))}"

    def _note_no_reply(
        self, entry: WorkloadState, sent: object, workload_id: WorkloadId, err: PersysError
    ) -> None:
        if entry.dispatch is not sent or entry.dispatch is None:
            return
        entry.dispatch = unanswered(entry.dispatch, str(err), now=self._clock.now())
        if entry.dispatch.unanswered_count == 1:
            log.warning(
                "agent.gave_no_answer",
                workload_id=workload_id,
                node_id=entry.assignment.node_id if entry.assignment is not None else "",
                revision=entry.dispatch.goal.revision,
                epoch=entry.dispatch.goal.epoch,
                desired=entry.dispatch.goal.desired,
                requested_at=entry.dispatch.sent_at.isoformat(),
                reason=str(err),
            )
        self._wake(workload_id)


def _note_revision(entry: WorkloadState, seen: Observation) -> None:
    """Remember that the node reports revisions when it is polled."""
    if seen.revision:
        entry.revision_from = seen.node_id


def _workload_of(effect: Effect) -> WorkloadId:
    return effect.workload.id if isinstance(effect, Apply) else effect.workload_id


def _ignore(_error: InternalError) -> None:
    """The failure is logged and counted; the lane continues with the next effect."""


def _was_replaced(entry: WorkloadState, removal: Remove) -> bool:
    """Whether the node has a newer assignment by now, which an agent without epochs would remove."""
    assignment = entry.assignment
    return (
        assignment is not None
        and assignment.node_id == removal.node_id
        and assignment.epoch > removal.epoch
    )


def _still_wanted(entry: WorkloadState, effect: Apply) -> bool:
    return (
        entry.workload == effect.workload
        and entry.dispatch is not None
        and entry.assignment is not None
        and entry.assignment.epoch == effect.epoch
    )


def _at(seen: Observation, seen_at: datetime) -> Observation:
    return structs.replace(seen, seen_at=seen_at)
