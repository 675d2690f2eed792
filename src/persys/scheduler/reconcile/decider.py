"""One decision about one workload: read, decide, commit, follow up. Its caller holds the workload's lock.

Capacity is reserved with the decision and released if the commit fails, so that decisions made during a
transaction see each other.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from persys.core.epochs import KEY_BITS
from persys.core.placement.pending_queue import pending_entry
from persys.core.placement.placer import BEING_REMOVED, TURNED_AWAY, excluding_nodes, placer_over
from persys.core.placement.tiers import needs_on_any_tier
from persys.core.reconcile.assign import refused_as_full, refused_by_runtime
from persys.core.reconcile.converge import result_due
from persys.core.reconcile.decide import decide
from persys.core.reconcile.effects import Apply, Effect, Remove
from persys.core.reconcile.situation import Decision, Policy, RejectedNode, Situation
from persys.core.recovery.rollback import held_epoch, proven_epoch
from persys.errors import ConflictError, PersysError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Tombstone
from persys.model.spec import type_of
from persys.model.workload import Workload
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
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
from persys.scheduler.reconcile.situation_builder import SituationBuilder, situation_of
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.store import keys

STORE_RETRY_SECONDS = 1.0
# A node that rejected a workload for lack of capacity is excluded for this long.
ASIDE_AFTER_REFUSAL = timedelta(minutes=1)


class EpochsReservedError(ConflictError):
    """A block of epochs had to be reserved: time has passed, decide again."""

    def __init__(self) -> None:
        super().__init__("epochs were reserved; decide again")


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and what it is based on. `began` is on the monotonic clock."""

    situation: Situation
    decision: Decision
    now: datetime
    began: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """A decision with its transaction. `nodes` are those on which it may alter the reservation.

    `fresh_intent`: a request has changed the intent.
    """

    decided: Decided
    change: Transaction
    nodes: set[NodeId]
    fresh_intent: bool


def nothing(_change: Transaction) -> None:
    """The default of `extra_writes`: nothing else is stored."""


def _hidden(situation: Situation) -> dict[NodeId, str]:
    """Nodes that are excluded for this workload, and why.

    A node with a stale copy is among them: that copy is removed first, so that its tombstone and its data
    are not mixed up with those of the next copy.
    """
    refused = {rejected.node_id: TURNED_AWAY for rejected in situation.rejected_nodes}
    return refused | {
        copy.node_id: BEING_REMOVED for copy in situation.copies if copy.being_removed
    }


class Decider:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        clock: Clock,
        *,
        policy: Policy,
        situations: SituationBuilder,
        random: Random,
        metrics: Metrics,
        wake: Callable[[WorkloadId], None],
        capacity_freed: Callable[[NodeId], None],
        submit_effect: Callable[[Effect], None],
        request_removal: Callable[[Tombstone], None],
    ) -> None:
        """`wake` is called when the time of the next decision has come."""
        self._cluster = cluster
        self._committer = committer
        self._clock = clock
        self._policy = policy
        self._situations = situations
        self._random = random
        self._metrics = metrics
        self._wake = wake
        self._capacity_freed = capacity_freed
        self._submit_effect = submit_effect
        self._request_removal = request_removal
        self._reserving: KeyedLock[str] = KeyedLock()
        self._timers: dict[WorkloadId, asyncio.TimerHandle] = {}
        self._placer = placer_over(cluster.node_index, cluster.waiting.wants)

    async def decide_and_commit(
        self,
        entry: WorkloadState | None,
        situation: Situation,
        *,
        user_event: EventKind | None = None,
        extra_writes: Callable[[Transaction], None] = nothing,
        lines_up: bool = False,
    ) -> None:
        """`user_event` is the event of the request, if there is one.

        Raises EpochsReservedError if an epoch had to be reserved first: decide again. `lines_up`: wait for
        steps that still wait for a reservation.
        """
        decided = self.decide(situation)
        if decided.decision.assignment is not None:
            epoch = decided.decision.assignment.epoch
            if (lines_up and self._reserving.is_held(keys.EPOCHS)) or not self.use_epoch(epoch):
                await self.reserve_epochs(epoch)
                raise EpochsReservedError
        prepared = self.prepare(
            entry,
            decided,
            user_event=user_event,
            fresh_intent=user_event is not None,
            extra_writes=extra_writes,
        )
        self.reserve(prepared)
        try:
            await self._committer.commit(prepared.change)
        except BaseException as err:
            self.not_committed(prepared, err)
            raise
        self.committed(prepared)

    def decide(self, situation: Situation) -> Decided:
        began, now = self._clock.monotonic(), self._clock.now()
        situation = self._read(situation, now)
        with excluding_nodes(_hidden(situation), self._cluster.node_index):
            decision = decide(
                situation,
                self._placer,
                self._policy,
                now=now,
                roll=self._random.random(),
            )
        return Decided(situation, decision, now, began)

    def use_epoch(self, epoch: int) -> bool:
        """False: it must be reserved first."""
        epochs = self._cluster.epochs
        if not epochs.covers(epoch):
            return False
        epochs.use(epoch)
        return True

    async def reserve_epochs(self, epoch: int) -> None:
        """Reserve a block with this epoch. Time passes meanwhile: decide again."""
        epochs = self._cluster.epochs
        async with self._reserving.hold(keys.EPOCHS):
            if not epochs.covers(epoch):
                counter = epochs.after_next_block(epoch, new_key=self._proof_key())
                await self._committer.commit(
                    Transaction(done=lambda: epochs.reserve(counter), puts={keys.EPOCHS: counter})
                )

    def prepare(
        self,
        entry: WorkloadState | None,
        decided: Decided,
        *,
        user_event: EventKind | None,
        fresh_intent: bool,
        extra_writes: Callable[[Transaction], None] = nothing,
    ) -> Prepared:
        """`user_event`: of the request, if it is stored. `fresh_intent`: a request changed the intent."""
        situation, decision, now = decided.situation, decided.decision, decided.now
        change, nodes = to_transaction(
            entry, situation.workload, decision, self._cluster, user_event=user_event, now=now
        )
        add_drift_records(
            change,
            self._cluster,
            situation,
            decision,
            self._policy,
            is_user_request=fresh_intent,
            now=now,
        )
        extra_writes(change)
        return Prepared(decided, change, nodes, fresh_intent)

    def reserve(self, prepared: Prepared) -> None:
        """Reserve capacity until `committed` or `not_committed` is called."""
        assignment = prepared.decided.decision.assignment
        if assignment is not None:
            self._cluster.reserve_pending(assignment)

    def not_committed(self, prepared: Prepared, err: BaseException) -> None:
        """Release the reservation."""
        workload_id = prepared.decided.situation.workload.id
        if isinstance(err, PersysError):
            seconds = self._clock.monotonic() - prepared.decided.began
            self._metrics.reconciled(result_of(err), seconds)
        self._cluster.end_pending(workload_id)
        self._cluster.update_reservations(workload_id, prepared.nodes)
        self._offer_later(prepared.nodes)

    def committed(
        self, prepared: Prepared, submit_effect: Callable[[Effect], None] | None = None
    ) -> None:
        """Log the decision, dispatch its effects and wake workloads that may use freed capacity.

        `submit_effect`: gets the effects instead of the dispatcher.
        """
        submit = submit_effect or self._submit_effect
        decided = prepared.decided
        situation, decision = decided.situation, decided.decision
        old, workload_id = situation.assignment, situation.workload.id
        self._cluster.end_pending(workload_id)
        result = Result.UNCHANGED if prepared.change.is_empty else Result.WRITTEN
        self._metrics.reconciled(result, self._clock.monotonic() - decided.began)
        if schedules_retry(situation, decision):
            self._metrics.retry_planned()
        log_decision(situation, decision, written=result is Result.WRITTEN)
        log_operation_end(situation, decision)
        if (ended := ended_actions(situation, decision)) is not None:
            submit(ended)
        self._dispatch(decided, submit, fresh_intent=prepared.fresh_intent)
        for tombstone in (decision.tombstone, decision.released):
            if tombstone is not None:
                self._request_removal(tombstone)
        if old is not None and releases_capacity(old, decision):
            self._capacity_freed(old.node_id)
        for node_id in self._cluster.waiting.after_decision(
            workload_id, self._cluster.node_index.slots
        ):
            self._capacity_freed(node_id)

    def refusal(self, workload: Workload, node_id: NodeId) -> str:
        """Why the workload does not fit on the node now; empty if it does."""
        rejection = self._placer.fits_on(workload.id, node_id, needs_on_any_tier(workload))
        return rejection.detail if rejection is not None else ""

    def complete_situation(self, situation: Situation) -> Situation:
        """The situation with the state of the workload's node and of copies on other nodes."""
        return self._situations.complete_situation(situation)

    def skip_epochs(self) -> None:
        """Continue the counter by the clock, above all used epochs.

        For an operator who adopts a copy with an epoch that the store does not know: the store was restored
        from a backup. A report of a node alone never causes this.
        """
        self._cluster.epochs.skip(now=self._clock.now())

    def wake_in(self, workload_id: WorkloadId, seconds: float) -> None:
        if timer := self._timers.pop(workload_id, None):
            timer.cancel()
        self._timers[workload_id] = asyncio.get_running_loop().call_later(
            max(0.0, seconds), self._wake, workload_id
        )

    def replied(self, entry: WorkloadState) -> None:
        """Its node has replied to an order: decide again, or wait for the deadline if it works on it."""
        situation, workload_id = situation_of(entry), entry.workload.id
        due = result_due(situation, self._policy)
        if due is None or not self._situations.only_waits(situation):
            self._wake(workload_id)
            return
        seconds = (due - self._clock.now()).total_seconds()
        timer, time = self._timers.get(workload_id), asyncio.get_running_loop().time()
        if timer is None or not time < timer.when() < time + seconds:
            self.wake_in(workload_id, seconds)

    def _read(self, situation: Situation, now: datetime) -> Situation:
        """Add the state of nodes, excluded nodes and the next epoch. Refusals of the node are recorded."""
        workload = situation.workload
        situation = self.complete_situation(situation)
        if refused_by_runtime(situation) and situation.assignment is not None:
            self._cluster.exclude_type(situation.assignment.node_id, type_of(workload.spec))
        if (why := refused_as_full(situation)) and situation.assignment is not None:
            rejected = RejectedNode(situation.assignment.node_id, now + ASIDE_AFTER_REFUSAL, why)
            self._cluster.exclude_node(workload.id, rejected)
        return situation.read(
            self._cluster.exclusions_of(workload.id, now), self._next_epoch(situation, now)
        )

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

    def _proof_key(self) -> str:
        """The key of the marker, or a new one for a cluster of an older version, which has none."""
        marker = self._committer.leader_key.marker
        first = marker.proof_key if marker is not None else ""
        return first or f"{self._random.getrandbits(KEY_BITS):064x}"

    def _offer_later(self, node_ids: Iterable[NodeId]) -> None:
        """Others may have been refused because of a failed reservation. Delayed: the store may still fail."""
        loop = asyncio.get_running_loop()
        for node_id in node_ids:
            loop.call_later(STORE_RETRY_SECONDS, self._capacity_freed, node_id)

    def _dispatch(
        self, decided: Decided, submit: Callable[[Effect], None], *, fresh_intent: bool
    ) -> None:
        situation, decision, now = decided.situation, decided.decision, decided.now
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
            submit(effect)
        if decision.wake_at is not None:
            self.wake_in(workload.id, (decision.wake_at - now).total_seconds())
