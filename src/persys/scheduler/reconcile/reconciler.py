"""When a decision is made: serial per workload, concurrent across workloads. `decider.py` makes it.

Every change marks a workload dirty, and its step runs as soon as no other step of it runs. A decision that
writes nothing does not wait. A step that raises an unexpected error sets its workload aside with the reason
and is retried with back-off; other workloads are not affected. Requests change the intent and decide in one
commit; `change_batches.py` does this for many workloads.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from persys.core.intent.apply import Accepted, Unchanged
from persys.core.intent.ownership import Owners, check_change
from persys.core.reconcile.effects import Effect
from persys.core.reconcile.retry import RetryPolicy
from persys.core.reconcile.situation import Policy, Situation
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
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Tombstone
from persys.model.workload import Workload
from persys.scheduler.commit.committer import ATTEMPTS_MAX, Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.ha.leader_key import not_leading
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.reconcile.change_batches import ChangeBatches, Transition, WorkloadChange
from persys.scheduler.reconcile.decider import (
    STORE_RETRY_SECONDS,
    Decider,
    EpochsReservedError,
    nothing,
)
from persys.scheduler.reconcile.situation_builder import (
    SituationBuilder,
    fresh_situation,
    situation_of,
)
from persys.scheduler.settings import SchedulerSettings
from persys.scheduler.state.cluster import BackOff, ClusterState, WorkloadState

T = TypeVar("T")

STEPS_AT_ONCE = 512
# Steps that start in one turn of the event loop: heartbeats and lease renewals are served after each turn.
STEPS_PER_TURN = 32
STEP = "reconcile"
OWNED_MAX = 4096


class Reconciler:
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
        self._supervisor = supervisor
        self._check_leader = check_leader
        self._owners = Owners(cluster.sets, cluster.jobs, cluster.runs)
        self._locks: KeyedLock[WorkloadId] = KeyedLock()
        self._dirty: OrderedDict[WorkloadId, None] = OrderedDict()
        self._wakeup = asyncio.Event()
        self._slots = asyncio.Semaphore(STEPS_AT_ONCE)
        self._decider = Decider(
            cluster,
            committer,
            clock,
            policy=policy,
            situations=situations,
            random=random,
            metrics=metrics,
            wake=self.wake,
            capacity_freed=self.capacity_freed,
            submit_effect=submit_effect,
            request_removal=request_removal,
        )
        self._batches = ChangeBatches(
            cluster,
            committer,
            self._decider,
            supervisor,
            locks=self._locks,
            check=self._check_not_blocked,
            changed=self._end_back_off,
            submit_effect=submit_effect,
        )
        self._owned = OwnedWork(supervisor, limit=OWNED_MAX, stopped=not_leading)
        self.steps = 0

    def wake(self, workload_id: WorkloadId) -> None:
        self._dirty[workload_id] = None
        self._wakeup.set()

    def replied(self, workload_id: WorkloadId) -> None:
        """Its node has replied to an order. It is woken unless there is nothing to decide before a report.

        A decision in progress does not know of the reply: it is made again.
        """
        entry = self._cluster.workloads.get(workload_id)
        if entry is None or self._locks.is_held(workload_id):
            self.wake(workload_id)
        elif workload_id not in self._dirty:
            self._decider.replied(entry)

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
        transition: Transition,
        *,
        extra_writes: Callable[[Accepted | Unchanged, Transaction], None] | None = None,
    ) -> Workload:
        """Change the intent and decide, in one commit. A change of a member is refused, except a retry.

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

    async def submit_all(
        self, changes: Sequence[WorkloadChange]
    ) -> dict[WorkloadId, Workload | PersysError]:
        """Change the intent of many workloads as `submit` does, in one pass.

        Returns the workload or the error of each. Each change is atomic, and one that fails affects no other.
        Raises FencedError if another scheduler leads.
        """
        outcomes: dict[WorkloadId, Accepted | Unchanged] = {}
        failed: dict[WorkloadId, PersysError] = {}
        left = [
            WorkloadChange(one.workload_id, partial(self._allowed, one, outcomes))
            for one in changes
        ]
        for _ in range(ATTEMPTS_MAX):
            for one in left:  # those that were changed by another writer are decided again
                failed.pop(one.workload_id, None)
            failed |= await self._batches.submit(left)
            left = [one for one in left if _is_conflict(failed.get(one.workload_id))]
            if not left:
                break
        if any(isinstance(outcome, Unchanged) for outcome in outcomes.values()):
            # A commit without changes is not fenced, and another leader may have changed it.
            await self._check_leader()
        return {key: outcome.workload for key, outcome in outcomes.items()} | failed

    async def submit_members(
        self, changes: Sequence[WorkloadChange]
    ) -> dict[WorkloadId, PersysError]:
        """Change members on behalf of their owner, in one pass. Returns the errors of those that failed.

        Each change is atomic, and one that fails affects no other.
        """
        return await self._batches.submit(changes)

    def refusal(self, workload: Workload, node_id: NodeId) -> str:
        """Why the workload does not fit on the node now; empty if it does."""
        return self._decider.refusal(workload, node_id)

    def complete_situation(self, situation: Situation) -> Situation:
        """The situation with the state of the workload's node and of copies on other nodes."""
        return self._decider.complete_situation(situation)

    def skip_epochs(self) -> None:
        """Continue the counter of epochs by the clock. See `Decider`."""
        self._decider.skip_epochs()

    async def _submit(
        self,
        workload_id: WorkloadId,
        transition: Transition,
        extra_writes: Callable[[Accepted | Unchanged, Transaction], None] | None,
    ) -> Workload:
        async def attempt() -> Workload:
            self._check_not_blocked(workload_id)
            entry = self._cluster.workloads.get(workload_id)
            old = entry.workload if entry is not None else None
            outcome = transition(old)
            add = partial(extra_writes, outcome) if extra_writes is not None else nothing
            match outcome:
                case Unchanged(workload=workload):
                    change = Transaction(done=lambda: None)
                    add(change)
                    await self._committer.commit(change)
                    # A commit without changes is not fenced, and another leader may have changed it.
                    await self._check_leader()
                    return workload
                case Accepted(workload=workload, event=kind):
                    check_change(old, workload, self._owners)
                    left = self._cluster.detached.get(workload_id)
                    situation = fresh_situation(entry, workload, left)
                    await self._decider.decide_and_commit(
                        entry, situation, user_event=kind, extra_writes=add
                    )
                    self._end_back_off(workload_id)
                    return workload

        async with self._locks.hold(workload_id):
            return await retry_on_conflict(attempt)

    def _allowed(
        self,
        change: WorkloadChange,
        outcomes: dict[WorkloadId, Accepted | Unchanged],
        old: Workload | None,
    ) -> Accepted | Unchanged:
        """The transition of a user: a change of a member is refused, except a retry."""
        outcome = change.transition(old)
        if isinstance(outcome, Accepted):
            check_change(old, outcome.workload, self._owners)
        outcomes[change.workload_id] = outcome
        return outcome

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
            self._decider.wake_in(workload_id, STORE_RETRY_SECONDS)
        else:
            self._end_back_off(workload_id)

    async def _decide_exclusively(self, entry: WorkloadState) -> None:
        """Decide. Steps that wait for the reservation of epochs continue in the order of their start.

        Others would take the capacity of workloads that are before them in the queue.
        """
        try:
            await self._decider.decide_and_commit(entry, situation_of(entry), lines_up=True)
        except EpochsReservedError:
            workload_id = entry.workload.id
            if self._cluster.workloads.get(workload_id) is not entry:
                raise
            if self._may_decide(workload_id):
                await self._decider.decide_and_commit(entry, situation_of(entry))

    def _back_off(self, workload_id: WorkloadId, error: InternalError) -> None:
        """Its step raised an unexpected error: it is not reconciled until the back-off is over."""
        entry = self._cluster.workloads.get(workload_id)
        if entry is None:
            return
        after = self._supervisor.retry_after(error)
        entry.back_off = BackOff(error.text, self._clock.now() + after)
        self._cluster.members.note(entry.workload)
        self._decider.wake_in(workload_id, after.total_seconds())

    def _is_backing_off(self, entry: WorkloadState) -> bool:
        """Whether it is in back-off; it is woken at the end of it."""
        if entry.back_off is None:
            return False
        left = (entry.back_off.until - self._clock.now()).total_seconds()
        if left > 0:
            self._decider.wake_in(entry.workload.id, left)
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


def _is_conflict(error: PersysError | None) -> bool:
    """Whether to decide again. A record that is unreadable stays so."""
    return isinstance(error, ConflictError) and not isinstance(error, QuarantinedError)


def policy_of(settings: SchedulerSettings) -> Policy:
    return Policy(
        retry=RetryPolicy(slow_after=settings.retry_slow_interval),
        apply_deadline=settings.agent_apply_timeout,
        vm_apply_deadline=settings.agent_vm_apply_timeout,
        delete_deadline=settings.agent_delete_timeout,
        poll_interval=settings.agent_status_poll_interval,
        missing_grace=settings.missing_grace_period,
    )
