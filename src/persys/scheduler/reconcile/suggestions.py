"""Suggestions of automation policies: decided once, applied in the same commit, idempotent by id.

The decision is stored in the transaction of its change: a suggestion that is submitted again after a failure
finds its decision and does not change a workload that was created since. A suggestion whose sender may not
perform the action waits for approval. Only the newest decisions are stored, and pending ones until they
expire.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from operator import attrgetter

from msgspec.structs import replace

from persys.core.intent import suggestions
from persys.core.intent.apply import Accepted, Unchanged
from persys.errors import DeniedError, NotFoundError, RefusedError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.identity import Caller
from persys.model.ids import WorkloadId
from persys.model.sets import SetId, WorkloadSet
from persys.model.workload import Desired, SuggestedAction, Suggestion, SuggestionDecision, Workload
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.sets.sets import Change, Sets
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys
from persys.wire.control import messages as control_messages

Store = Callable[[SuggestionDecision, Transaction], None]
"""Adds an accepted decision to the transaction of its change."""

KEPT_MAX = 1_000
PENDING_MAX = 200
PENDING_FOR = timedelta(days=7)
DROPS_MAX = 8


class Suggestions:
    def __init__(
        self,
        cluster: ClusterState,
        reconciler: Reconciler,
        committer: Committer,
        sets: Sets,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._reconciler = reconciler
        self._sets = sets
        self._committer = committer
        self._clock = clock
        self._locks: KeyedLock[str] = KeyedLock()
        self._decisions = cluster.suggestion_decisions

    def all(self) -> list[SuggestionDecision]:
        """The newest first."""
        return sorted(self._decisions.values(), key=attrgetter("decided_at"), reverse=True)

    async def submit(self, suggestion: Suggestion, caller: Caller | None) -> SuggestionDecision:
        """Applied if the caller may perform the action, else stored for approval.

        Raises UnavailableError if nothing was decided: submit it again.
        """
        async with self._locks.hold(suggestion.id):
            known = self._decisions.get(suggestion.id)
            permitted = suggestions.may_apply(suggestion, caller)
            by = caller.label if caller is not None else ""
            if known is None and permitted:
                return await self._rule(suggestion, submitted_by=by)
            if known is None:
                return await self._defer(suggestion, by)
        if suggestion.is_same_request_as(known.suggestion):
            return known
        reason = (
            f"suggestion_id: {suggestion.id} was already used for another suggestion; "
            "use a new id for each suggestion"
        )
        return SuggestionDecision(
            suggestion, accepted=False, decided_at=self._clock.now(), reason=reason
        )

    async def approve(self, suggestion_id: str, caller: Caller | None) -> SuggestionDecision:
        """Apply a pending suggestion. Raises DeniedError unless the caller may perform its action."""
        async with self._locks.hold(suggestion_id):
            pending = self._pending(suggestion_id, caller)
            by = caller.label if caller is not None else ""
            return await self._rule(
                pending.suggestion, submitted_by=pending.submitted_by, decided_by=by
            )

    async def reject(self, suggestion_id: str, caller: Caller | None) -> SuggestionDecision:
        async with self._locks.hold(suggestion_id):
            pending = self._pending(suggestion_id, caller)
            by = caller.label if caller is not None else ""
            decision = replace(
                pending,
                decided_at=self._clock.now(),
                reason=f"rejected by {by or 'an operator'}",
                decided_by=by,
                pending_until=None,
            )
            await self._store(decision)
            return decision

    def _pending(self, suggestion_id: str, caller: Caller | None) -> SuggestionDecision:
        decision = self._decisions.get(suggestion_id)
        if decision is None:
            raise NotFoundError("suggestion", suggestion_id)
        if decision.pending_until is None:
            outcome_word = "accepted" if decision.accepted else "rejected"
            raise RefusedError(f"suggestion {suggestion_id} was already {outcome_word}")
        if not decision.is_pending(self._clock.now()):
            raise RefusedError(
                f"suggestion {suggestion_id} expired at {decision.pending_until:%F %T}"
            )
        if not suggestions.may_apply(decision.suggestion, caller):
            needed = suggestions.permission_for(decision.suggestion.action)
            raise DeniedError(
                f"suggestion {suggestion_id} needs the permission {needed!s}", reason="role"
            )
        return decision

    async def _defer(self, suggestion: Suggestion, by: str) -> SuggestionDecision:
        """Store it for approval. One that cannot be applied anyway is rejected at once."""
        now = self._clock.now()
        rejected = SuggestionDecision(suggestion, accepted=False, decided_at=now, submitted_by=by)
        try:
            self._evaluate_now(suggestion, now)
        except RefusedError as err:
            decision = replace(rejected, reason=str(err))
            await self._store(decision)
            return decision
        waiting = sum(one.is_pending(now) for one in self._decisions.values())
        if waiting >= PENDING_MAX:
            return replace(
                rejected,
                reason=f"too many pending suggestions: {waiting} wait for approval, expected at most "
                f"{PENDING_MAX}",
            )
        needed = suggestions.permission_for(suggestion.action)
        decision = replace(
            rejected,
            reason=f"{by} does not have the permission {needed!s}; to apply it, an operator runs: "
            f"persysctl suggestion approve {suggestion.id}",
            pending_until=now + PENDING_FOR,
        )
        await self._store(decision)
        return decision

    def _evaluate_now(self, suggestion: Suggestion, now: datetime) -> None:
        """Raises RefusedError if it cannot be applied."""
        target_id = suggestion.target_workload
        if suggestions.is_about_set(suggestion, self._cluster.sets):
            suggestions.evaluate_set(suggestion, self._cluster.sets.get(target_id), now=now)
            return
        entry = self._cluster.workloads.get(WorkloadId(target_id))
        target = entry.workload if entry is not None else None
        suggestions.evaluate(suggestion, _desired(suggestion), target, now=now)

    async def _rule(
        self, suggestion: Suggestion, *, submitted_by: str, decided_by: str = ""
    ) -> SuggestionDecision:
        decision: SuggestionDecision | None = None

        def store(granted: SuggestionDecision, change: Transaction) -> None:
            nonlocal decision
            decision = replace(granted, submitted_by=submitted_by, decided_by=decided_by)
            self._record(decision, change)

        try:
            if suggestions.is_about_set(suggestion, self._cluster.sets):
                await self._change_set(suggestion, store)
            else:
                await self._change_workload(suggestion, store)
        except RefusedError as err:
            decision = SuggestionDecision(
                suggestion,
                accepted=False,
                decided_at=self._clock.now(),
                reason=str(err),
                submitted_by=submitted_by,
                decided_by=decided_by,
            )
            await self._store(decision)
        assert decision is not None
        return decision

    async def _change_workload(self, suggestion: Suggestion, store: Store) -> None:
        def evaluate(target: Workload | None) -> Accepted | Unchanged:
            desired = _desired(suggestion)
            return suggestions.evaluate(suggestion, desired, target, now=self._clock.now())

        def extra_writes(outcome: Accepted | Unchanged, change: Transaction) -> None:
            unchanged = isinstance(outcome, Unchanged)
            reason = f"desired_state is already {outcome.workload.desired}" if unchanged else ""
            action = suggestions.applied(suggestion, outcome)
            store(self._granted(suggestion, reason, action), change)

        await self._reconciler.submit(
            WorkloadId(suggestion.target_workload), evaluate, extra_writes=extra_writes
        )

    async def _change_set(self, suggestion: Suggestion, store: Store) -> None:
        set_id = SetId(suggestion.target_workload)

        def make(old: WorkloadSet | None, now: datetime) -> Change:
            return suggestions.evaluate_set(suggestion, old, now=now)

        def extra_writes(outcome: Change, change: Transaction) -> None:
            target = self._cluster.sets[set_id]  # as before the change
            reason = suggestions.reason_for_set(suggestion, target, outcome)
            action = suggestions.applied_to_set(outcome)
            store(self._granted(suggestion, reason, action), change)

        await self._sets.change(set_id, make, extra_writes=extra_writes)

    def _granted(self, suggestion: Suggestion, reason: str, action: str) -> SuggestionDecision:
        return SuggestionDecision(
            suggestion,
            accepted=True,
            decided_at=self._clock.now(),
            reason=reason,
            applied_action=action,
        )

    async def _store(self, decision: SuggestionDecision) -> None:
        async def attempt() -> None:
            change = Transaction(done=lambda: None)
            self._record(decision, change)
            await self._committer.commit(change)

        await retry_on_conflict(attempt)

    def _record(self, decision: SuggestionDecision, change: Transaction) -> None:
        """Add the ruling to a change, and delete the oldest if there are too many."""
        suggestion_id = decision.suggestion.id
        excess = min(DROPS_MAX, len(self._decisions) + 1 - KEPT_MAX)
        old = self._oldest(excess) if excess > 0 else []
        change.puts[keys.suggestion_key(suggestion_id)] = decision
        change.drops.extend(keys.suggestion_key(known) for known in old)
        change.events.append(_event(decision))

        def update() -> None:
            for known in old:
                self._decisions.pop(known, None)
            self._decisions[suggestion_id] = decision

        change.also_when_done(update)

    def _oldest(self, count: int) -> list[str]:
        """The ids of the oldest decided ones."""
        now = self._clock.now()
        decided = (
            decision for decision in self._decisions.values() if not decision.is_pending(now)
        )
        ordered = sorted(decided, key=attrgetter("decided_at"))
        return [decision.suggestion.id for decision in ordered[:count]]


def _desired(suggestion: Suggestion) -> Desired | None:
    if suggestion.action is not SuggestedAction.SET_DESIRED_STATE or not suggestion.desired_state:
        return None
    return control_messages.desired(suggestion.desired_state)


def _event(decision: SuggestionDecision) -> Event:
    suggestion = decision.suggestion
    policy = suggestion.policy_name or suggestion.policy_id
    by = f" of policy {policy}" if policy else ""
    because = f" because {suggestion.reason}" if suggestion.reason else ""
    what = decision.applied_action if decision.accepted else decision.reason
    kind = EventKind.SUGGESTION_ACCEPTED if decision.accepted else EventKind.SUGGESTION_REJECTED
    return Event(
        decision.decided_at,
        EventKind.SUGGESTION_PENDING if decision.pending_until is not None else kind,
        f"{suggestion.id}{by}{because}: {what}",
        workload_id=suggestion.target_workload,
    )
