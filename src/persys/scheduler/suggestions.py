"""Suggestions of automation policies: judged once, carried out with the same commit, answered alike for ever.

What was ruled is a record beside the change it made, so no crash comes between them: a suggestion that is
submitted again after any failure finds its ruling, and does not touch a workload that was created since.
Only the newest rulings are kept.
"""

from operator import attrgetter

from persys.core import automation
from persys.core.intake import Accepted, Unchanged
from persys.errors import RefusedError
from persys.infra.clock import Clock
from persys.infra.turns import Turns
from persys.model.event import Event, EventKind
from persys.model.ids import WorkloadId
from persys.model.suggestion import Ruling, SuggestedAction, Suggestion
from persys.model.workload import Desired, Workload
from persys.scheduler.changes import Change
from persys.scheduler.committer import Committer, insist
from persys.scheduler.reconciler import Reconciler
from persys.store import keys
from persys.wire import control

KEPT_MAX = 1_000
DROPS_MAX = 8


class Suggestions:
    def __init__(
        self,
        rulings: dict[str, Ruling],
        reconciler: Reconciler,
        committer: Committer,
        clock: Clock,
    ) -> None:
        """`rulings` are those on record, by the id of the suggestion."""
        self._reconciler = reconciler
        self._committer = committer
        self._clock = clock
        self._turns: Turns[str] = Turns()
        self._rulings = rulings

    async def submit(self, suggestion: Suggestion) -> Ruling:
        """The ruling. UnavailableError: there is none yet, submit it again."""
        return await self._reconciler.owned(self._submit(suggestion))

    async def _submit(self, suggestion: Suggestion) -> Ruling:
        async with self._turns.of(suggestion.id):
            known = self._rulings.get(suggestion.id)
            if known is None:
                return await self._rule(suggestion)
        if suggestion.asks_the_same_as(known.suggestion):
            return known
        reason = (
            f"suggestion_id: {suggestion.id} was already decided, and asked for something else then; "
            "give what is new an id of its own"
        )
        return Ruling(suggestion, accepted=False, decided_at=self._clock.now(), reason=reason)

    async def _rule(self, suggestion: Suggestion) -> Ruling:
        ruling: Ruling | None = None

        def judge(target: Workload | None) -> Accepted | Unchanged:
            desired = _desired(suggestion)
            return automation.judge(suggestion, desired, target, now=self._clock.now())

        def beside(outcome: Accepted | Unchanged, change: Change) -> None:
            nonlocal ruling
            ruling = self._granted(suggestion, outcome)
            self._record(ruling, change)

        try:
            await self._reconciler.submit(
                WorkloadId(suggestion.target_workload), judge, beside=beside
            )
        except RefusedError as err:
            ruling = Ruling(
                suggestion, accepted=False, decided_at=self._clock.now(), reason=str(err)
            )
            await self._reject(ruling)
        assert ruling is not None
        return ruling

    def _granted(self, suggestion: Suggestion, outcome: Accepted | Unchanged) -> Ruling:
        unchanged = isinstance(outcome, Unchanged)
        return Ruling(
            suggestion,
            accepted=True,
            decided_at=self._clock.now(),
            reason=f"it is to be {outcome.workload.desired} already" if unchanged else "",
            applied_action=automation.applied(suggestion, outcome),
        )

    async def _reject(self, ruling: Ruling) -> None:
        async def attempt() -> None:
            change = Change(done=lambda: None)
            self._record(ruling, change)
            await self._committer.commit(change)

        await insist(attempt)

    def _record(self, ruling: Ruling, change: Change) -> None:
        """Add the ruling to a change, and drop the oldest when there are too many."""
        suggestion_id = ruling.suggestion.id
        excess = min(DROPS_MAX, len(self._rulings) + 1 - KEPT_MAX)
        old = self._oldest(excess) if excess > 0 else []
        change.puts[keys.suggestion_key(suggestion_id)] = ruling
        change.drops.extend(keys.suggestion_key(known) for known in old)
        change.events.append(_event(ruling))
        done = change.done

        def done_and_kept() -> None:
            done()
            for known in old:
                self._rulings.pop(known, None)
            self._rulings[suggestion_id] = ruling

        change.done = done_and_kept

    def _oldest(self, count: int) -> list[str]:
        ordered = sorted(self._rulings.values(), key=attrgetter("decided_at"))
        return [ruling.suggestion.id for ruling in ordered[:count]]


def _desired(suggestion: Suggestion) -> Desired | None:
    if suggestion.action is not SuggestedAction.SET_DESIRED_STATE or not suggestion.desired_state:
        return None
    return control.desired(suggestion.desired_state)


def _event(ruling: Ruling) -> Event:
    suggestion = ruling.suggestion
    policy = suggestion.policy_name or suggestion.policy_id
    by = f" of policy {policy}" if policy else ""
    because = f" because {suggestion.reason}" if suggestion.reason else ""
    what = ruling.applied_action if ruling.accepted else ruling.reason
    return Event(
        ruling.decided_at,
        EventKind.SUGGESTION_ACCEPTED if ruling.accepted else EventKind.SUGGESTION_REJECTED,
        f"{suggestion.id}{by}{because}: {what}",
        workload_id=suggestion.target_workload,
    )
