"""Wake, read, decide, commit, dispatch: serial per workload, concurrent across workloads.

Every change marks a workload dirty, and its step runs as soon as no other step of it runs. A decision that
writes nothing does not wait. Capacity is reserved with the decision and released if the commit fails, so that
decisions made during a transaction see each other. A step that raises an unexpected error sets its workload
aside with the reason and is retried with back-off; other workloads are not affected.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TypeVar

from persys.core.epochs import KEY_BITS
from persys.core.intent.apply import Accepted, Unchanged
from persys.core.placement.pending_queue import pending_entry
from persys.core.placement.placer import BEING_REMOVED, TURNED_AWAY, excluding_nodes, placer_over
from persys.core.placement.tiers import needs_on_any_tier
from persys.core.reconcile.assign import refused_as_full, refused_by_runtime
from persys.core.reconcile.decide import decide
from persys.core.reconcile.effects import Apply, Effect, Remove
from persys.core.reconcile.retry import RetryPolicy
from persys.core.reconcile.situation import Decision, Policy, RejectedNode, Situation
from persys.core.recovery.rollback import held_epoch, proven_epoch
from persys.errors import (
    ConflictError,
    FencedError,
    PersysError,
    QuarantinedError,
    StoreUnavailableError,
)
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.telemetry import tracing
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Tombstone
from persys.model.spec import type_of
from persys.model.workload import Workload
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.ha.leader_key import not_leading
from persys.scheduler.metrics.counters import Metrics, Result
from persys.scheduler.reconcile.decision_to_transaction import (
    add_drift_records,
    intent_update,
    next_dispatch,
    releases_capacity,
    result_of,
    schedules_retry,
    to_transaction,
)
from persys.scheduler.reconcile.operation_log import (
    ended_actions,
    log_decision,
    log_operation_end,
)
from persys.scheduler.reconcile.situation_builder import (
    SituationBuilder,
    fresh_situation,
    situation_of,
)
from persys.scheduler.settings import SchedulerSettings
from persys.scheduler.state.cluster import BackOff, ClusterState, WorkloadState
from persys.store import keys

T = TypeVar("T")

STORE_RETRY_SECONDS = 1.0
# A node that rejected a workload for lack of capacity is excluded for this long.
ASIDE_AFTER_REFUSAL = timedelta(minutes=1)
STEPS_AT_ONCE = 512
# Steps that start in one turn of the event loop: heartbeats and lease renewals are served after each turn.
STEPS_PER_TURN = 32
STEP = "reconcile"
OWNED_MAX = 4096


class EpochsReservedError(ConflictError):
    """A block of epochs had to be reserved: time has passed, decide again."""

    def __init__(self) -> None:
        super().__init__("epochs were reserved; decide again")


def _hidden(situation: Situation) -> dict[NodeId, str]:
    """Nodes that are excluded for this workload, and why.

    A node with a stale copy is among them: that copy is removed first, so that its tombstone and its data
    are not mixed up with those of the next copy.
    """
    refused = {rejected.node_id: TURNED_AWAY for rejected in situation.rejected_nodes}
    return refused | {
        copy.node_id: BEING_REMOVED for copy in situation.copies if copy.being_removed
    }


def _nothing(_change: Transaction) -> None:
    """The default of `extra_writes`: nothing else is stored."""


class Reconciler:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        clock: Clock,
        *,
        policy: Policy,
        node_lease: timedelta,
        node_grace: float,
        offload_after: timedelta,
        random: Random,
        metrics: Metrics,
        supervisor: Supervisor,
        submit_effect: Callable[[Effect], None],
        request_removal: Callable[[Tombstone], None],
        check_leader: Callable[[], Awaitable[None]],
    ) -> None:
        """`submit_effect` dispatches an effect, `request_removal` the removal of a stale copy.

        `check_leader` raises FencedError if another scheduler leads.
        """
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._policy = policy
        self._random = random
        self._metrics = metrics
        self._supervisor = supervisor
        self._submit_effect = submit_effect
        self._request_removal = request_removal
        self._check_leader = check_leader
        self._locks: KeyedLock[WorkloadId] = KeyedLock()
        self._reserving: KeyedLock[str] = KeyedLock()
        self._dirty: OrderedDict[WorkloadId, None] = OrderedDict()
        self._wakeup = asyncio.Event()
        self._slots = asyncio.Semaphore(STEPS_AT_ONCE)
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}
        self._placer = placer_over(cluster.node_index, cluster.waiting.wants)
        self._situations = SituationBuilder(
            cluster,
            clock,
            node_lease=node_lease,
            node_grace=node_grace,
            offload_after=offload_after,
        )
        self._owned = OwnedWork(supervisor, limit=OWNED_MAX, stopped=not_leading)
        self.steps = 0

    def wake(self, workload_id: WorkloadId) -> None:
        self._dirty[workload_id] = None
        self._wakeup.set()

    def wake_many(self, workload_ids: Iterable[WorkloadId]) -> None:
        self._dirty.update(dict.fromkeys(workload_ids))
        self._wakeup.set()

    def wake_all(self) -> None:
        self.wake_many(list(self._cluster.workloads))

    def capacity_freed(self, node_id: NodeId) -> None:
        """The node may have free capacity: wake the waiting workloads that could use it."""
        slot = self._cluster.node_index.slots.get(node_id)
        if slot is not None and self._cluster.waiting:
            self.wake_many(self._cluster.waiting.candidates_for(slot))

    def node_changed(self, node_id: NodeId) -> None:
        """The node record has changed: the node may be ready, closed or confirmed dead now."""
        self.wake_many(self._cluster.waiting.waiting_for(node_id))
        self.capacity_freed(node_id)

    def _offer_later(self, node_ids: Iterable[NodeId]) -> None:
        """Others may have been refused because of a failed reservation. Delayed: the store may still fail."""
        loop = asyncio.get_running_loop()
        for node_id in node_ids:
            loop.call_later(STORE_RETRY_SECONDS, self.capacity_freed, node_id)

    def depth(self) -> int:
        return len(self._dirty)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self._step_all(group)

    async def own_requests(self) -> None:
        """Complete submitted requests. Requests are accepted while this runs."""
        await self._owned.run()

    async def _step_all(self, group: asyncio.TaskGroup) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            while self._dirty:
                for _ in range(STEPS_PER_TURN):
                    if not self._dirty:
                        break
                    await self._slots.acquire()
                    workload_id, _ = self._dirty.popitem(last=False)
                    group.create_task(self._step(workload_id))
                await asyncio.sleep(0)

    async def submit(
        self,
        workload_id: WorkloadId,
        transition: Callable[[Workload | None], Accepted | Unchanged],
        *,
        extra_writes: Callable[[Accepted | Unchanged, Transaction], None] | None = None,
    ) -> Workload:
        """Change the intent and decide, in one commit.

        `transition` maps the present workload to the new one, or raises. `extra_writes` adds to the commit.
        A caller that is cancelled does not stop the change.
        """
        return await self._owned.finish(
            "request", workload_id, partial(self._submit, workload_id, transition, extra_writes)
        )

    async def run_exclusive(self, workload_id: WorkloadId, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` while no step of the workload runs, even if the caller is cancelled."""

        async def attempt() -> T:
            async with self._locks.hold(workload_id):
                return await retry_on_conflict(work)

        return await self._owned.finish("request", workload_id, attempt)

    def refusal(self, workload: Workload, node_id: NodeId) -> str:
        """Why the workload does not fit on the node now; empty if it does."""
        rejection = self._placer.fits_on(workload.id, node_id, needs_on_any_tier(workload))
        return rejection.detail if rejection is not None else ""

    async def _submit(
        self,
        workload_id: WorkloadId,
        transition: Callable[[Workload | None], Accepted | Unchanged],
        extra_writes: Callable[[Accepted | Unchanged, Transaction], None] | None,
    ) -> Workload:
        async def attempt() -> Workload:
            self._check_not_blocked(workload_id)
            entry = self._cluster.workloads.get(workload_id)
            outcome = transition(entry.workload if entry is not None else None)
            add = partial(extra_writes, outcome) if extra_writes is not None else _nothing
            match outcome:
                case Unchanged(workload=workload):
                    change = Transaction(done=lambda: None)
                    add(change)
                    await self._committer.commit(change)
                    # A commit without changes is not fenced, and another leader may have changed it.
                    await self._check_leader()
                    return workload
                case Accepted(workload=workload, event=kind):
                    left = self._cluster.detached.get(workload_id)
                    situation = fresh_situation(entry, workload, left)
                    await self._decide_and_commit(
                        entry, situation, user_event=kind, extra_writes=add
                    )
                    self._end_back_off(workload_id)
                    return workload

        async with self._locks.hold(workload_id):
            return await retry_on_conflict(attempt)

    async def _step(self, workload_id: WorkloadId) -> None:
        try:
            with self._supervisor.contain(
                STEP, workload_id, failed=partial(self._back_off, workload_id), expects=FencedError
            ):
                await self._reconcile(workload_id)
        finally:
            self._slots.release()

    async def _reconcile(self, workload_id: WorkloadId) -> None:
        try:
            async with self._locks.hold(workload_id):
                entry = self._cluster.workloads.get(workload_id)
                # While frozen nothing can be written; all workloads are woken when that ends.
                if (
                    entry is None
                    or not self._may_decide(workload_id)
                    or self._is_backing_off(entry)
                ):
                    return
                self.steps += 1
                refusal = entry.refusal
                with tracing.internal_span("reconcile", workload_id=workload_id):
                    await self._decide_exclusively(entry)
                if entry.refusal is refusal:
                    entry.refusal = None  # decided
        except EpochsReservedError:
            self.wake(workload_id)
        except (StoreUnavailableError, ConflictError):
            self._wake_in(workload_id, STORE_RETRY_SECONDS)
        else:
            self._end_back_off(workload_id)

    async def _decide_exclusively(self, entry: WorkloadState) -> None:
        """Decide. Steps that wait for the reservation of epochs continue in the order of their start.

        Others would take the capacity of workloads that are before them in the queue.
        """
        try:
            await self._decide_and_commit(entry, situation_of(entry), lines_up=True)
        except EpochsReservedError:
            workload_id = entry.workload.id
            if self._cluster.workloads.get(workload_id) is not entry:
                raise
            if self._may_decide(workload_id):
                await self._decide_and_commit(entry, situation_of(entry))

    def _back_off(self, workload_id: WorkloadId, error: InternalError) -> None:
        """Its step raised an unexpected error: it is not reconciled until the back-off is over."""
        entry = self._cluster.workloads.get(workload_id)
        if entry is None:
            return
        after = self._supervisor.retry_after(error)
        entry.back_off = BackOff(error.text, self._clock.now() + after)
        self._wake_in(workload_id, after.total_seconds())

    def _is_backing_off(self, entry: WorkloadState) -> bool:
        """Whether it is in back-off; it is woken at the end of it."""
        if entry.back_off is None:
            return False
        left = (entry.back_off.until - self._clock.now()).total_seconds()
        if left > 0:
            self._wake_in(entry.workload.id, left)
        return left > 0

    def _end_back_off(self, workload_id: WorkloadId) -> None:
        """A decision succeeded: end the back-off."""
        entry = self._cluster.workloads.get(workload_id)
        if entry is not None and entry.back_off is not None:
            entry.back_off = None
            self._supervisor.resolved(STEP, workload_id)

    def _may_decide(self, workload_id: WorkloadId) -> bool:
        """False in a frozen mode, and while a record that the decision needs is unreadable."""
        frozen = self._committer.modes.is_frozen
        return not frozen and not self._cluster.blocked_because(workload_id)

    def _check_not_blocked(self, workload_id: WorkloadId) -> None:
        if why := self._cluster.blocked_because(workload_id):
            raise QuarantinedError(
                f"workload {workload_id} cannot be changed: {why}; see `persysctl record list`"
            )

    async def _decide_and_commit(
        self,
        entry: WorkloadState | None,
        situation: Situation,
        *,
        user_event: EventKind | None = None,
        extra_writes: Callable[[Transaction], None] = _nothing,
        lines_up: bool = False,
    ) -> None:
        """Read, decide, commit, follow up. `user_event` is the event of the user request, if there is one."""
        began = self._clock.monotonic()
        now = self._clock.now()
        situation = self._read(situation, now)
        decision = self._decide(situation, now)
        if decision.assignment is not None:
            await self._use_epoch(decision.assignment.epoch, lines_up=lines_up)
        workload, is_user_request = situation.workload, user_event is not None
        change, nodes = to_transaction(
            entry, workload, decision, self._cluster, user_event=user_event, now=now
        )
        add_drift_records(
            change,
            self._cluster,
            situation,
            decision,
            self._policy,
            is_user_request=is_user_request,
            now=now,
        )
        extra_writes(change)
        written = await self._commit(change, workload, decision, nodes, began=began)
        self._follow_up(situation, decision, written=written, fresh_intent=is_user_request, now=now)

    def _read(self, situation: Situation, now: datetime) -> Situation:
        """Add the state of nodes, excluded nodes and the next epoch. Refusals of the node are recorded."""
        workload = situation.workload
        situation = self.complete_situation(situation)
        if refused_by_runtime(situation) and situation.assignment is not None:
            self._cluster.exclude_type(situation.assignment.node_id, type_of(workload.spec))
        if (why := refused_as_full(situation)) and situation.assignment is not None:
            rejected = RejectedNode(situation.assignment.node_id, now + ASIDE_AFTER_REFUSAL, why)
            self._cluster.exclude_node(workload.id, rejected)
        return replace(
            situation,
            rejected_nodes=self._cluster.exclusions_of(workload.id, now),
            next_epoch=self._next_epoch(situation, now),
        )

    def _decide(self, situation: Situation, now: datetime) -> Decision:
        with excluding_nodes(_hidden(situation), self._cluster.node_index):
            return decide(
                situation,
                self._placer,
                self._policy,
                now=now,
                roll=self._random.random(),
            )

    async def _commit(
        self,
        change: Transaction,
        workload: Workload,
        decision: Decision,
        nodes: set[NodeId],
        *,
        began: float,
    ) -> bool:
        """Reserve and commit. Releases the reservation if the commit fails. True: records were written."""
        if decision.assignment is not None:
            self._cluster.reserve_pending(decision.assignment)
        try:
            await self._committer.commit(change)
        except BaseException as err:
            if isinstance(err, PersysError):
                self._metrics.reconciled(result_of(err), self._clock.monotonic() - began)
            self._cluster.end_pending(workload.id)
            self._cluster.update_reservations(workload.id, nodes)
            self._offer_later(nodes)
            raise
        self._cluster.end_pending(workload.id)
        result = Result.UNCHANGED if change.is_empty else Result.WRITTEN
        self._metrics.reconciled(result, self._clock.monotonic() - began)
        return result is Result.WRITTEN

    def _follow_up(
        self,
        situation: Situation,
        decision: Decision,
        *,
        written: bool,
        fresh_intent: bool,
        now: datetime,
    ) -> None:
        """Log the decision, dispatch its effects and wake workloads that may use freed capacity."""
        old, workload_id = situation.assignment, situation.workload.id
        if schedules_retry(situation, decision):
            self._metrics.retry_planned()
        log_decision(situation, decision, written=written)
        log_operation_end(situation, decision)
        if (ended := ended_actions(situation, decision)) is not None:
            self._submit_effect(ended)
        self._dispatch(situation, decision, fresh_intent=fresh_intent, now=now)
        for tombstone in (decision.tombstone, decision.released):
            if tombstone is not None:
                self._request_removal(tombstone)
        if old is not None and releases_capacity(old, decision):
            self.capacity_freed(old.node_id)
        for node_id in self._cluster.waiting.after_decision(
            workload_id, self._cluster.node_index.slots
        ):
            self.capacity_freed(node_id)

    def _next_epoch(self, situation: Situation, now: datetime) -> int:
        """A node that reports a higher epoch means: the store was restored from an older copy, or the report
        is false. The counter then continues by the clock, whatever the report says, above all proven epochs.
        """
        epochs = self._cluster.epochs
        held = held_epoch(situation)
        if held >= epochs.next:
            epochs.skip(now=now)
            seen = situation.observation
            if seen is not None and self._cluster.is_proven(seen):
                epochs.use(seen.epoch)
        epochs.use(proven_epoch(situation))
        return epochs.next

    def skip_epochs(self) -> None:
        """Continue the counter by the clock, above all used epochs.

        For an operator who adopts a copy with an epoch that the store does not know: the store was restored
        from a backup. A report of a node alone never causes this.
        """
        self._cluster.epochs.skip(now=self._clock.now())

    async def _use_epoch(self, epoch: int, *, lines_up: bool) -> None:
        """Raises EpochsReservedError if the epoch had to be reserved first: decide again.

        `lines_up`: wait for steps that still wait for a reservation.
        """
        epochs = self._cluster.epochs
        if epochs.covers(epoch) and not (lines_up and self._reserving.is_held(keys.EPOCHS)):
            epochs.use(epoch)
            return
        async with self._reserving.hold(keys.EPOCHS):
            if not epochs.covers(epoch):
                counter = epochs.after_next_block(epoch, new_key=self._proof_key())
                await self._committer.commit(
                    Transaction(done=lambda: epochs.reserve(counter), puts={keys.EPOCHS: counter})
                )
        raise EpochsReservedError

    def _proof_key(self) -> str:
        """The key of the marker, or a new one for a cluster of an older version, which has none."""
        marker = self._committer.leader_key.marker
        first = marker.proof_key if marker is not None else ""
        return first or f"{self._random.getrandbits(KEY_BITS):064x}"

    def complete_situation(self, situation: Situation) -> Situation:
        """The situation with the state of the workload's node and of copies on other nodes."""
        return self._situations.complete_situation(situation)

    def _dispatch(
        self, situation: Situation, decision: Decision, *, fresh_intent: bool, now: datetime
    ) -> None:
        workload = situation.workload
        entry = self._cluster.workloads.get(workload.id)
        if timer := self._timers.pop(workload.id, None):
            timer.cancel()
        if entry is None:
            return
        if fresh_intent:
            entry.reset_observations()
        if decision.fulfilled:
            entry.dispatch = None
        if decision.waits_for_capacity:
            self._cluster.waiting.add(workload.id, pending_entry(situation, now))
        else:
            self._cluster.waiting.discard(workload.id)
        renewed = intent_update(situation, decision) if fresh_intent else ()
        for effect in decision.effects or renewed:
            if isinstance(effect, Apply | Remove):
                entry.dispatch = next_dispatch(entry, effect, now)
            self._submit_effect(effect)
        if decision.wake_at is not None:
            self._wake_in(workload.id, (decision.wake_at - now).total_seconds())

    def _wake_in(self, workload_id: WorkloadId, seconds: float) -> None:
        if timer := self._timers.pop(workload_id, None):
            timer.cancel()
        self._timers[workload_id] = asyncio.get_running_loop().call_later(
            max(0.0, seconds), self.wake, workload_id
        )


def policy_of(settings: SchedulerSettings) -> Policy:
    return Policy(
        retry=RetryPolicy(slow_after=settings.retry_slow_interval),
        apply_deadline=settings.agent_apply_timeout,
        vm_apply_deadline=settings.agent_vm_apply_timeout,
        delete_deadline=settings.agent_delete_timeout,
        poll_interval=settings.agent_status_poll_interval,
        missing_grace=settings.missing_grace_period,
    )
