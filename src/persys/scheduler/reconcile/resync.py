"""Periodic resync of workloads and nodes: a safety net in case an event was missed.

Each round also selects offloaded workloads that may return to tier 0: a few at a time, and none while others
wait. The selection is only in memory; core decides on each selected workload, and its decisions are stored.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from zlib import crc32

from msgspec.structs import replace

from persys.core.placement.requirements import Requirements, requirements_of
from persys.core.placement.select import choose
from persys.core.reconcile.situation import satisfies
from persys.errors import PersysError
from persys.infra.aio.supervisor import InternalError, KeyedWork, Supervisor
from persys.infra.clock import Clock
from persys.model import feature
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeStatus
from persys.model.status import Status
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.ports import Agents
from persys.scheduler.state.cluster import ClusterState, NodeState, WorkloadState

WAITING_PER_ROUND = 64
REPORTING_EVERY = 10  # a node that pushes its status is polled once in this many rounds
SOON_SECONDS = 1.0
ORDER_TIME = timedelta(minutes=1)  # an order is expected to be sent and acknowledged in this time
SLICE = 500  # workloads checked before yielding to other tasks


class Resync:
    def __init__(
        self,
        cluster: ClusterState,
        agents: Agents,
        observations: Observations,
        clock: Clock,
        *,
        supervisor: Supervisor,
        wake: Callable[[WorkloadId], None],
        sweep_tombstones: Callable[[], Awaitable[None]],
        probe_runtimes: Callable[[NodeId], None],
    ) -> None:
        self._cluster = cluster
        self._agents = agents
        self._observations = observations
        self._clock = clock
        self._supervisor = supervisor
        self._nodes: KeyedWork[NodeId] = KeyedWork(supervisor, "survey", clock)
        self._wake = wake
        self._sweep_tombstones = sweep_tombstones
        self._poll_runtimes = probe_runtimes
        self._returns = ReturnSelection(cluster, wake)
        self._changed: set[NodeId] = set()
        self._changed_wakeup = asyncio.Event()

    async def reconcile(self, every: timedelta) -> None:
        """Wake every workload that has not converged."""
        while True:
            await asyncio.sleep(every.total_seconds())
            workload_ids = list(self._cluster.workloads)
            for start in range(0, len(workload_ids), SLICE):
                self._wake_slice(workload_ids[start : start + SLICE])
                await asyncio.sleep(0)
            self._wake_some_waiting()
            self._returns.select()
            await self._sweep_tombstones()

    def _wake_slice(self, workload_ids: Sequence[WorkloadId]) -> None:
        """The whole slice; if that fails, one by one, so that only the failing workload is skipped."""
        failures: list[InternalError] = []
        with self._supervisor.contain("reconcile_pass", "", failed=failures.append):
            self._wake_unconverged(workload_ids)
        if failures:
            for workload_id in workload_ids:
                with self._supervisor.contain(
                    "reconcile_pass", workload_id, failed=failures.append
                ):
                    self._wake_unconverged((workload_id,))

    def _wake_unconverged(self, workload_ids: Iterable[WorkloadId]) -> None:
        entries, waiting = self._cluster.workloads, self._cluster.waiting
        oldest = self._clock.now() - ORDER_TIME
        for workload_id in workload_ids:
            entry = entries.get(workload_id)
            if entry is None or _has_converged(entry) or _is_being_sent(entry, oldest):
                continue
            if workload_id not in waiting:  # it is woken when capacity is freed
                self._wake(workload_id)

    def _wake_some_waiting(self) -> None:
        """A few per round: thousands may wait, and a missed wake-up is rare."""
        waiting = self._cluster.waiting
        for workload_id in waiting.next_batch(WAITING_PER_ROUND):
            wait = waiting.pending_entry(workload_id)
            if wait.own_nodes or choose(wait.needs, self._cluster.node_index) is not None:
                self._wake(workload_id)

    async def poll_nodes(self, every: timedelta) -> None:
        """Poll nodes for their full list: all that do not push status, and in each round some that do.

        A node with a change that no order caused is polled soon.
        """
        round_number, next_round = 0, self._clock.monotonic() + every.total_seconds()
        while True:
            is_round = True
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_round - self._clock.monotonic())):
                    await self._changed_wakeup.wait()
                    await asyncio.sleep(SOON_SECONDS)
                    is_round = False
            self._changed_wakeup.clear()
            changed, self._changed = self._changed, set()
            if is_round:
                round_number += 1
                next_round = self._clock.monotonic() + every.total_seconds()
            async with asyncio.TaskGroup() as group:
                for member in list(self._cluster.nodes.values()):
                    due = member.node.id in changed or (is_round and _is_due(member, round_number))
                    if due and _is_ready(member) and self._nodes.is_due(member.node.id):
                        group.create_task(self._poll_contained(member))

    def poll_soon(self, node_id: NodeId) -> None:
        """No order caused a change on this node: others may have happened, so poll it soon."""
        member = self._cluster.nodes.get(node_id)
        if member is not None and not _pushes_status(member):
            self._changed.add(node_id)
            self._changed_wakeup.set()

    async def _poll_contained(self, member: NodeState) -> None:
        with self._nodes.contain(member.node.id):
            await self._poll_node(member)

    async def _poll_node(self, member: NodeState) -> None:
        node = member.node
        started_at = self._clock.now()
        try:
            found = await self._agents.list_workloads(node.id, node.endpoint)
        except PersysError:
            return  # a node that stays unreachable loses its lease
        self._poll_runtimes(node.id)
        if _pushes_status(member):
            # What it pushed during the poll is newer.
            found = [replace(seen, seen_at=started_at) for seen in found]
        self._observations.take_all(node.id, found, started_at)


def _is_ready(member: NodeState) -> bool:
    return member.node.status is not NodeStatus.NOT_READY


def _pushes_status(member: NodeState) -> bool:
    return feature.PUSHES_STATUS in member.node.capabilities.features


def _is_due(member: NodeState, round_number: int) -> bool:
    """Nodes that push status are spread over the rounds, so that each round polls a few of them."""
    if not _pushes_status(member):
        return True
    return crc32(member.node.id.encode()) % REPORTING_EVERY == round_number % REPORTING_EVERY


def _has_converged(entry: WorkloadState) -> bool:
    return entry.workload_status is not None and satisfies(entry.workload_status, entry.workload)


def _is_being_sent(entry: WorkloadState, oldest: datetime) -> bool:
    """Whether its order is queued or without a response: the response wakes it."""
    dispatch = entry.dispatch
    return dispatch is not None and dispatch.in_flight and dispatch.sent_at > oldest


RETURNING_MAX = 4  # at a time
CHECKED_PER_ROUND = 256


class ReturnSelection:
    """The offloaded workloads that may return to tier 0 now."""

    def __init__(self, cluster: ClusterState, wake: Callable[[WorkloadId], None]) -> None:
        self._cluster = cluster
        self._wake = wake
        self._unchecked: deque[WorkloadId] = deque()

    def select(self) -> None:
        cluster = self._cluster
        cluster.may_return.clear()
        if not cluster.node_index.beyond:
            self._unchecked.clear()
            return
        free = RETURNING_MAX - len(cluster.kept_copies)
        refused: set[Requirements] = set()
        for entry in self._next_few() if free > 0 else ():
            needs = requirements_of(entry.workload)
            if needs in refused or not self._has_capacity(needs):
                refused.add(needs)
                continue
            cluster.may_return.add(entry.workload.id)
            self._wake(entry.workload.id)
            if len(cluster.may_return) == free:
                break

    def _has_capacity(self, needs: Requirements) -> bool:
        slot = choose(needs, self._cluster.node_index)
        return slot is not None and not self._cluster.waiting.wants(slot)

    def _next_few(self) -> Iterator[WorkloadState]:
        """Workloads that want to return, round robin."""
        cluster = self._cluster
        if not self._unchecked:
            for node_id in cluster.node_index.beyond:
                self._unchecked.extend(cluster.on_node.get(node_id, ()))
        for _ in range(min(CHECKED_PER_ROUND, len(self._unchecked))):
            entry = cluster.workloads.get(self._unchecked.popleft())
            if entry is not None and _wants_to_return(entry):
                yield entry


def _wants_to_return(entry: WorkloadState) -> bool:
    status = entry.workload_status
    return (
        entry.workload.rules.return_when_free
        and entry.retry is None
        and status is not None
        and status.status is Status.RUNNING
        and satisfies(status, entry.workload)
    )
