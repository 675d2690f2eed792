"""Changes of many workloads, of a user or of the owner of members: decided in one pass, committed in shared
transactions.

Decisions see the capacity that earlier ones of the pass reserve. Each change is a transaction of its own, so
it is stored completely or not at all. A change that fails is reported with its error and affects no other.
No lock is held while another is awaited, so that batches with the same workloads cannot block each other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from persys.core.intent.apply import Accepted, Unchanged
from persys.core.reconcile.effects import Effect
from persys.errors import DefectError, FencedError, PersysError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.offload import Turns
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.model.workload import Workload
from persys.scheduler.commit.committer import Committer
from persys.scheduler.ha.leader_key import not_leading
from persys.scheduler.reconcile.decider import Decider, Prepared
from persys.scheduler.reconcile.situation_builder import fresh_situation
from persys.scheduler.state.cluster import ClusterState

Transition = Callable[[Workload | None], Accepted | Unchanged]

# Decisions of all batches in one turn of the event loop: heartbeats and lease renewals are served after it.
DECISIONS_PER_TURN = 64
# Effects that wait until orders to the same node are sent together.
EFFECTS_MAX = 10_000
CHANGE = "change"


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """`transition` maps the present workload to the new one, or raises a PersysError."""

    workload_id: WorkloadId
    transition: Transition


@dataclass(slots=True)
class _Open:
    """A workload whose lock is held. `prepared` None: nothing was decided, or its change has ended."""

    workload_id: WorkloadId
    prepared: Prepared | None = None
    stored: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self.stored is not None and not self.stored.done()


class ChangeBatches:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        decider: Decider,
        supervisor: Supervisor,
        *,
        locks: KeyedLock[WorkloadId],
        check: Callable[[WorkloadId], None],
        changed: Callable[[WorkloadId], None],
        submit_effect: Callable[[Effect], None],
    ) -> None:
        """`locks` are those of the reconciler. `check` raises if a workload cannot be changed now.

        `changed` is called after each change. `submit_effect` dispatches an effect.
        """
        self._cluster = cluster
        self._committer = committer
        self._decider = decider
        self._supervisor = supervisor
        self._locks = locks
        self._check = check
        self._changed = changed
        self._submit_effect = submit_effect
        self._effects: list[Effect] = []
        self._turns = Turns()

    async def submit(self, changes: Sequence[WorkloadChange]) -> dict[WorkloadId, PersysError]:
        """Returns the errors of those that failed. Raises FencedError if another scheduler leads.

        The ids are unique. While earlier changes are being stored, later ones are decided.
        """
        failed: dict[WorkloadId, PersysError] = {}
        held: deque[_Open] = deque()
        # Those in use are last: their steps end meanwhile.
        ordered = sorted(changes, key=lambda change: self._locks.is_held(change.workload_id))
        try:
            await self._turns.take()
            for count, change in enumerate(ordered, 1):
                if self._locks.is_held(change.workload_id):
                    await self._end_all(held, failed)
                await self._locks.acquire(change.workload_id)
                held.append(_Open(change.workload_id))
                await self._begin(change, held[-1], failed)
                if count % DECISIONS_PER_TURN == 0:
                    await self._turns.take()
                    self._end_stored(held, failed)
                    if len(self._effects) >= EFFECTS_MAX:
                        self._flush()
            await self._end_all(held, failed)
        finally:
            self._flush()
            for one in held:  # only after an error
                if one.prepared is not None:
                    self._decider.not_committed(one.prepared, not_leading())
                self._locks.release(one.workload_id)
        return failed

    async def _begin(
        self, change: WorkloadChange, one: _Open, failed: dict[WorkloadId, PersysError]
    ) -> None:
        """Decide and queue the change."""
        try:
            while (epoch := self._decide(change, one, failed)) is not None:
                await self._decider.reserve_epochs(epoch)  # time has passed: decide again
        except FencedError:
            raise
        except PersysError as err:
            self._fail(one, err, failed)

    def _decide(
        self, change: WorkloadChange, one: _Open, failed: dict[WorkloadId, PersysError]
    ) -> int | None:
        """Returns an epoch that must be reserved first; None: it is decided. Raises PersysError."""
        failures: list[InternalError] = []
        with self._supervisor.contain(CHANGE, one.workload_id, failed=failures.append):
            self._check(one.workload_id)
            entry = self._cluster.workloads.get(one.workload_id)
            outcome = change.transition(entry.workload if entry is not None else None)
            if isinstance(outcome, Unchanged):
                return None
            left = self._cluster.detached.get(one.workload_id)
            decided = self._decider.decide(fresh_situation(entry, outcome.workload, left))
            assignment = decided.decision.assignment
            if assignment is not None and not self._decider.use_epoch(assignment.epoch):
                return assignment.epoch
            prepared = self._decider.prepare(
                entry, decided, user_event=_event_of(outcome), fresh_intent=True
            )
            self._decider.reserve(prepared)
            one.prepared = prepared
            one.stored = self._committer.enqueue(prepared.change)
        if failures:
            self._fail(one, DefectError(f"internal error: {failures[0].text}"), failed)
        return None

    async def _end_all(self, held: deque[_Open], failed: dict[WorkloadId, PersysError]) -> None:
        """Wait until all begun changes are stored, and release their locks."""
        while held:
            if held[0].stored is not None and held[0].is_waiting:
                await asyncio.wait([held[0].stored])
            self._end_stored(held, failed)

    def _end_stored(self, held: deque[_Open], failed: dict[WorkloadId, PersysError]) -> None:
        """Follow up on the first changes whose commits have ended, and release their locks."""
        while held and not held[0].is_waiting:
            one = held[0]
            failures: list[InternalError] = []
            with self._supervisor.contain(CHANGE, one.workload_id, failed=failures.append):
                self._end(one, failed)
            if failures:
                failed[one.workload_id] = DefectError(f"internal error: {failures[0].text}")
            held.popleft()
            self._locks.release(one.workload_id)

    def _end(self, one: _Open, failed: dict[WorkloadId, PersysError]) -> None:
        prepared = one.prepared
        if prepared is None:
            return
        error = one.stored.exception() if one.stored is not None else None
        if isinstance(error, FencedError):
            raise error
        if isinstance(error, PersysError):
            self._fail(one, error, failed)
            return
        one.prepared = None
        if error is not None:
            raise error
        self._decider.committed(prepared, self._effects.append)
        self._changed(one.workload_id)

    def _flush(self) -> None:
        """Send the orders together: those to one node share a message."""
        effects, self._effects = self._effects, []
        for effect in effects:
            self._submit_effect(effect)

    def _fail(self, one: _Open, error: PersysError, failed: dict[WorkloadId, PersysError]) -> None:
        failed[one.workload_id] = error
        if one.prepared is not None:
            self._decider.not_committed(one.prepared, error)
            one.prepared = None


def _event_of(accepted: Accepted) -> EventKind | None:
    """The event of the owner says that members are created; one for each would displace all others."""
    is_member = accepted.workload.membership is not None
    return None if is_member and accepted.event is EventKind.WORKLOAD_CREATED else accepted.event
