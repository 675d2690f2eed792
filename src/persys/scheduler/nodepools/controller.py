"""The loop of the leader over all node pools: list, decide, store, act.

Each pool has a pass of its own, so that a slow provider delays no other pool. A pass lists the instances of
its pool, stores each decision before it acts, and lists again before each create. The machine is stored
before the create call; the answer is stored after it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog
from msgspec.structs import replace

from persys.core.nodepools.decision import decide
from persys.core.nodepools.outcome import RecordChange, after_create, change_for
from persys.core.nodepools.steps import (
    Create,
    Destroy,
    Drain,
    DropPool,
    Hold,
    Keep,
    PoolInstance,
    Remove,
    Rule,
    Step,
)
from persys.core.nodes import confirm_dead, drain
from persys.errors import FencedError, NotFoundError, PersysError, RefusedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.supervisor import KeyedWork
from persys.infra.clock import Clock
from persys.infra.failpoints import failpoint
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId
from persys.model.node import Node, NodeStatus
from persys.model.nodepool import Machine, MachineState, NodePool, PoolId
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.membership.nodes import Membership
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.nodepools.observed import Observed
from persys.scheduler.nodepools.provision import Provisioner
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

log = structlog.get_logger()

BUSY_SECONDS = 10.0  # between two lists of a pool with machines under way or workloads that wait
IDLE_SECONDS = 60.0
PASSES_MAX = 8

_KINDS = {
    MachineState.READY: EventKind.MACHINE_READY,
    MachineState.BOOTING: EventKind.MACHINE_CREATED,
    MachineState.DRAINING: EventKind.MACHINE_DRAINING,
    MachineState.DESTROYING: EventKind.MACHINE_DESTROYING,
}


@dataclass(slots=True)
class PoolStatus:
    """What this leader last saw of a pool."""

    instances: Sequence[PoolInstance] | None = None
    problem: str = ""  # why the provider cannot be used
    steps: Sequence[Step] = ()
    due_at: float = 0.0
    passed_at: float = -math.inf


class PoolController:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        membership: Membership,
        observed: Observed,
        provisioner: Provisioner,
        clock: Clock,
        *,
        cluster_id: str,
        may_act: Callable[[], bool],
        work: KeyedWork[str],
        locks: KeyedLock[str],
        metrics: Metrics,
        pass_interval: timedelta,
        retained_volumes: Callable[[Node], Awaitable[int]],
    ) -> None:
        """`may_act`: the mode is normal and this scheduler leads. `locks` serialize changes of a pool.

        `pass_interval` is the least time between two lists of a pool: two in a row without an instance mean
        that it does not exist. `retained_volumes` counts the volumes on a node whose workloads are deleted;
        it raises PersysError if the node does not reply.
        """
        self._cluster = cluster
        self._committer = committer
        self._membership = membership
        self._observed = observed
        self._provisioner = provisioner
        self._clock = clock
        self._cluster_id = cluster_id
        self._may_act = may_act
        self._work = work
        self._locks = locks
        self._metrics = metrics
        self._pass_interval = pass_interval.total_seconds()
        self._retained_volumes = retained_volumes
        self._absent: dict[str, int] = {}
        self._statuses: dict[str, PoolStatus] = {}
        self._running: set[str] = set()
        self._wakeup = asyncio.Event()

    def wake(self, pool_id: str = "") -> None:
        """A pool has changed, or all records were read again."""
        if pool_id:
            self._status(pool_id).due_at = 0.0
        self._wakeup.set()

    def status(self, pool_id: str) -> PoolStatus:
        return self._statuses.get(pool_id) or PoolStatus()

    async def run(self) -> None:
        """Without node pools it waits for one, and no timer runs."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wakeup.clear()
                    for pool_id in self._due():
                        self._running.add(pool_id)
                        group.create_task(self._contained(pool_id))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._pause()):
                            await self._wakeup.wait()
        finally:
            self._running.clear()
            self._absent.clear()
            await self._provisioner.close_all()

    def _due(self) -> list[str]:
        now = self._clock.monotonic()
        due = [
            pool_id
            for pool_id in self._cluster.node_pools
            if pool_id not in self._running
            and self._due_at(pool_id) <= now
            and self._work.is_due(pool_id)
        ]
        return due[: max(0, PASSES_MAX - len(self._running))]

    def _due_at(self, pool_id: str) -> float:
        status = self._status(pool_id)
        due_at = status.due_at
        if len(self._cluster.waiting):
            due_at = min(due_at, status.passed_at + BUSY_SECONDS)
        return max(due_at, status.passed_at + self._pass_interval)

    def _pause(self) -> float | None:
        waiting = [pool_id for pool_id in self._cluster.node_pools if pool_id not in self._running]
        if not waiting:
            return None if not self._running else 1.0
        due_at = min(map(self._due_at, waiting))
        return min(max(0.05, due_at - self._clock.monotonic()), 1.0)

    def _status(self, pool_id: str) -> PoolStatus:
        return self._statuses.setdefault(pool_id, PoolStatus())

    async def _contained(self, pool_id: str) -> None:
        """An unexpected error, and an expected one such as a lost race, costs this pool one pass."""
        try:
            with self._work.contain(pool_id):
                await self._pass(pool_id)
        except FencedError:
            raise
        except PersysError as err:
            log.info("nodepool.pass_ended", pool_id=pool_id, reason=str(err))
        finally:
            self._running.discard(pool_id)
            self._set_due(pool_id)

    def _set_due(self, pool_id: str) -> None:
        if pool_id not in self._cluster.node_pools:
            self._statuses.pop(pool_id, None)
            return
        status = self._status(pool_id)
        idle = all(isinstance(step, Keep) and step.rule is Rule.IN_USE for step in status.steps)
        seconds = IDLE_SECONDS if idle else BUSY_SECONDS  # sooner while workloads wait
        status.passed_at = self._clock.monotonic()
        # A pass that was not allowed to act is repeated soon: a new leader is confirmed after its first pass.
        status.due_at = status.passed_at + seconds if self._may_act() else 0.0

    async def _pass(self, pool_id: str) -> None:
        pool = self._cluster.node_pools.get(pool_id)
        if pool is None or not self._may_act():
            return
        status = self._status(pool_id)
        if unreadable := self._observed.unreadable(pool, self._cluster_id):
            status.problem, status.steps = unreadable, ()
            return
        status.instances = await self._list(pool, status)
        status.steps = await self._act(pool_id, status.instances)
        await self._create(pool_id, status)

    async def _list(self, pool: NodePool, status: PoolStatus) -> list[PoolInstance] | None:
        """None: the provider did not answer. Logged once."""
        try:
            instances = await self._provisioner.instances(pool, self._clock.now())
        except PersysError as err:
            if not status.problem:
                log.warning("nodepool.provider_failed", pool_id=pool.pool_id, reason=str(err))
            status.problem = str(err)
            self._metrics.pool_call_failed(pool.pool_id, "list")
            return None
        if status.problem:
            log.info("nodepool.provider_answers", pool_id=pool.pool_id)
        status.problem = ""
        return instances

    def decided(
        self, pool: NodePool, instances: Sequence[PoolInstance] | None, *, note_idle: bool
    ) -> list[Step]:
        """The steps of a pool now. Reads memory only."""
        now = self._clock.now()
        machines = [
            replace(machine, absent_count=self._absent.get(machine.name, 0))
            for machine in self._observed.machines(pool.pool_id)
        ]
        names = {machine.name for machine in machines} | {one.name for one in instances or ()}
        return decide(
            self._observed.numbered(pool, self._cluster_id),
            self._observed.shared_out(now).get(pool.pool_id, []),
            machines,
            self._observed.nodes(names, now, note_idle=note_idle),
            instances,
            now,
            cluster_id=self._cluster_id,
        )

    async def _act(self, pool_id: str, instances: Sequence[PoolInstance] | None) -> list[Step]:
        """All steps but creates."""
        pool = self._cluster.node_pools.get(pool_id)
        if pool is None:
            return []
        steps = await self._with_volumes_kept(self.decided(pool, instances, note_idle=True))
        for step in steps:
            if isinstance(step, Keep | Destroy) and step.machine is not None:
                self._absent[step.machine.name] = step.machine.absent_count
            if not self._may_act():
                return steps
            if not isinstance(step, Create | Hold):
                await self._perform(pool_id, step)
        return steps

    async def _with_volumes_kept(self, steps: Sequence[Step]) -> list[Step]:
        """A node with retained volumes is neither drained because it is idle nor destroyed after a drain."""
        kept: list[Step] = []
        for step in steps:
            machine = step.machine if isinstance(step, Drain | Destroy) else None
            ends = isinstance(step, Drain | Destroy) and step.rule in (Rule.IDLE, Rule.DRAINED)
            known = self._cluster.machines.get(machine.name) if machine is not None else None
            if ends and known is not None and (why := await self._volumes_on(known.node_id)):
                kept.append(Keep(known, Rule.HAS_DATA, why))
            else:
                kept.append(step)
        return kept

    async def _volumes_on(self, node_id: NodeId) -> str:
        """Why the node is kept; empty if it has no retained volumes."""
        member = self._cluster.nodes.get(node_id)
        if member is None or member.node.status is NodeStatus.NOT_READY:
            return ""
        try:
            count = await self._retained_volumes(member.node)
        except PersysError as err:
            return f"its node does not report its volumes: {err}"
        return f"its node has {count} retained volumes: delete them first" if count else ""

    async def _perform(
        self, pool_id: str, step: Keep | Drain | Destroy | Remove | DropPool
    ) -> None:
        match step:
            case Keep():
                await self._store(pool_id, step)
            case Drain():
                await self._drain(pool_id, step)
            case Destroy():
                await self._destroy(pool_id, step)
            case Remove():
                await self._remove(pool_id, step)
            case DropPool():
                await self._drop_pool(pool_id)

    async def _drain(self, pool_id: str, step: Drain) -> None:
        def drained(node: Node) -> Node:
            if step.rule is Rule.IDLE and self._cluster.bound_to(node.id):
                raise RefusedError(f"node {node.id} was assigned a workload")
            return (
                node
                if node.drain is not None
                else drain(node, deadline=None, now=self._clock.now())
            )

        try:
            await self._membership.change(step.machine.node_id, EventKind.NODE_DRAIN_ASKED, drained)
        except RefusedError as err:
            log.info("nodepool.not_drained", machine=step.machine.name, reason=str(err))
            return
        failpoint("nodepool-node-drained")
        await self._store(pool_id, step)

    async def _destroy(self, pool_id: str, step: Destroy) -> None:
        await self._store(pool_id, step)
        pool = self._cluster.node_pools.get(pool_id)
        if pool is None or not step.provider_id or not self._may_act():
            return
        try:
            await self._provisioner.destroy(pool, step.provider_id)
        except PersysError as err:
            self._metrics.pool_call_failed(pool_id, "destroy")
            log.warning("nodepool.destroy_failed", machine=step.name, reason=str(err))
        failpoint("nodepool-machine-destroyed")

    async def _remove(self, pool_id: str, step: Remove) -> None:
        """The machine does not exist, so its node is dead. Its workloads leave first."""
        node_id = step.machine.node_id
        member = self._cluster.nodes.get(node_id)
        if member is not None and self._cluster.bound_to(node_id):
            if member.node.status is NodeStatus.NOT_READY and not member.node.confirmed_dead:
                await self._membership.change(
                    node_id,
                    EventKind.NODE_CONFIRMED_DEAD,
                    lambda node: confirm_dead(node, now=self._clock.now()),
                )
            return
        if member is not None:
            with suppress(NotFoundError):
                await self._membership.remove(node_id)
        failpoint("nodepool-node-removed")
        await self._store(pool_id, step)
        self._absent.pop(step.machine.name, None)

    async def _drop_pool(self, pool_id: str) -> None:
        async with self._locks.hold(pool_id):
            event = Event(self._clock.now(), EventKind.NODE_POOL_DELETED, f"node pool {pool_id}")
            await self._committer.commit(
                Transaction(
                    done=lambda: self._forget(pool_id),
                    drops=[keys.node_pool_key(pool_id)],
                    events=[event],
                )
            )
        await self._provisioner.close(pool_id)

    def _forget(self, pool_id: str) -> None:
        self._cluster.node_pools.pop(pool_id, None)
        log.info("nodepool.deleted", pool_id=pool_id)

    async def _create(self, pool_id: str, status: PoolStatus) -> None:
        """One machine at a time; the instances are listed again before the next."""
        while status.instances is not None and self._may_act():
            machine = await self._store_next(pool_id, status.instances)
            pool = self._cluster.node_pools.get(pool_id)
            if machine is None or pool is None or not self._may_act():
                return
            self._metrics.pool_create(pool_id)
            try:
                answer = await self._provisioner.create(pool, machine)
            except PersysError as err:
                self._metrics.pool_call_failed(pool_id, "create")
                log.warning("nodepool.create_unanswered", machine=machine.name, reason=str(err))
                return  # the machine may exist: its record stays
            failpoint("nodepool-machine-created")
            async with self._locks.hold(pool_id):
                pool = self._cluster.node_pools.get(pool_id, pool)
                change = after_create(pool, machine, answer, now=self._clock.now())
                await self._commit(change, *_answered(machine, change))
            if change.drop is not None:
                self._metrics.pool_call_failed(pool_id, "create")
                return
            status.instances = await self._list(pool, status)

    async def _store_next(self, pool_id: str, instances: Sequence[PoolInstance]) -> Machine | None:
        """Decide again with the present records, and store the next machine to create."""
        async with self._locks.hold(pool_id):
            pool = self._cluster.node_pools.get(pool_id)
            if pool is None:
                return None
            steps = self.decided(pool, instances, note_idle=True)
            step = next((step for step in steps if isinstance(step, Create)), None)
            if step is None:
                return None
            change = change_for(pool, None, step, now=self._clock.now())
            text = f"size {step.machine.size}, {step.machine.hour_price:g} per hour: {step.why}"
            await self._commit(change, EventKind.MACHINE_CREATING, step.machine, text, step.rule)
            return step.machine

    async def _store(self, pool_id: str, step: Keep | Drain | Destroy | Remove) -> None:
        async with self._locks.hold(pool_id):
            pool = self._cluster.node_pools.get(pool_id)
            if pool is None:
                return
            machine = step.machine
            known = self._cluster.machines.get(machine.name) if machine is not None else None
            change = change_for(pool, known, step, now=self._clock.now())
            if machine is None:
                assert isinstance(step, Destroy)
                await self._note_untracked(pool.pool_id, step)
            elif change:
                kind = EventKind.MACHINE_REMOVED if change.drop else _KINDS[machine.state]
                await self._commit(change, kind, machine, step.why, step.rule)

    async def _note_untracked(self, pool_id: PoolId, step: Destroy) -> None:
        """Stored before the call, so that only the leader destroys."""
        text = f"instance {step.provider_id} of node pool {pool_id}: {step.why}"
        event = Event(
            self._clock.now(),
            EventKind.MACHINE_DESTROYING,
            text,
            node_id=step.name,
            rule=step.rule,
        )
        await self._committer.commit(Transaction(done=lambda: None, events=[event]))

    async def _commit(
        self, change: RecordChange, kind: EventKind, machine: Machine, text: str, rule: str
    ) -> None:
        put, drop, pool = change.put, change.drop, change.pool

        def done() -> None:
            if pool is not None:
                self._cluster.node_pools[pool.pool_id] = pool
            if put is not None:
                self._cluster.machines[put.name] = put
            if drop is not None:
                self._cluster.machines.pop(drop.name, None)
            log.info("machine.changed", machine=machine.name, kind=kind, rule=rule, reason=text)

        transaction = Transaction(done=done)
        if pool is not None:
            transaction.puts[keys.node_pool_key(pool.pool_id)] = pool
        if put is not None:
            transaction.puts[keys.machine_key(put.name)] = put
        if drop is not None:
            transaction.drops.append(keys.machine_key(drop.name))
        transaction.events.append(
            Event(self._clock.now(), kind, text, node_id=machine.name, rule=rule)
        )
        await self._committer.commit(transaction)
        failpoint("nodepool-stored", kind)


def _answered(machine: Machine, change: RecordChange) -> tuple[EventKind, Machine, str, str]:
    if change.put is not None:
        text = f"the provider has created it as {change.put.provider_id}"
        return EventKind.MACHINE_CREATED, machine, text, Rule.CREATED
    message = change.pool.provisioning.message if change.pool is not None else ""
    return EventKind.MACHINE_REFUSED, machine, message, Rule.BACK_OFF
