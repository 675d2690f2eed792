"""Sets as users change them. A change is one commit with the record, a new revision and the events.

A set holds the lock of the workload with its id while it is changed, so that a workload, a set and a job
never get the same id at the same time.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from persys.core.intent.ownership import Owners, check_id
from persys.core.sets import changes
from persys.core.sets.changes import SetApply, SetChange, Unchanged
from persys.core.sets.situation import SetEvent
from persys.errors import NotFoundError, QuarantinedError, RefusedError
from persys.infra.clock import Clock
from persys.model.event import Event
from persys.model.ids import WorkloadId
from persys.model.sets import ScalePolicy, SetId, SetRevision, Template, UpdatePolicy, WorkloadSet
from persys.model.workload import Desired
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.sets.member_states import MemberStates
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

Change = SetChange | Unchanged
Make = Callable[[WorkloadSet | None, datetime], Change]


@dataclass(frozen=True, slots=True)
class SetPatch:
    """What a request changes in a set. None: unchanged, and the default for a new set."""

    set_id: SetId
    template: Template | None = None
    replicas: int | None = None
    every_node: bool | None = None
    update: UpdatePolicy | None = None
    scale: ScalePolicy | None = None
    desired: Desired | None = None


class Sets:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        reconciler: Reconciler,
        states: MemberStates,
        clock: Clock,
        *,
        changed: Callable[[str], None],
        check_leader: Callable[[], Awaitable[None]],
    ) -> None:
        """`changed` is called after each change. `check_leader` raises FencedError if another one leads."""
        self._cluster = cluster
        self._committer = committer
        self._reconciler = reconciler
        self._states = states
        self._clock = clock
        self._changed = changed
        self._check_leader = check_leader
        # The set itself is not among those whose ids it must not have.
        self._others = Owners(frozenset(), cluster.jobs, cluster.runs)

    def get(self, set_id: str) -> WorkloadSet:
        record = self._cluster.sets.get(set_id)
        if record is None:
            raise NotFoundError("set", set_id)
        return record

    def find(self, set_id: str) -> WorkloadSet | None:
        return self._cluster.sets.get(set_id)

    def all(self) -> list[WorkloadSet]:
        return [record for _, record in sorted(self._cluster.sets.items())]

    def revisions(self, record: WorkloadSet) -> list[SetRevision]:
        """The stored ones, the oldest first."""
        stored = self._cluster.set_revisions
        return [
            found
            for number in record.revisions
            if (found := stored.get(f"{record.set_id}/{number}")) is not None
        ]

    async def apply(self, patch: SetPatch, *, caller: str) -> Change:
        """Create or update a set. `caller` is the identity in the record of a new revision."""

        def make(old: WorkloadSet | None, now: datetime) -> Change:
            return self.applied(old, patch, now=now, caller=caller)

        return await self._change(patch.set_id, make)

    def applied(
        self, old: WorkloadSet | None, patch: SetPatch, *, now: datetime, caller: str
    ) -> Change:
        """The outcome of an apply, which is not stored. Raises RefusedError."""
        set_id = patch.set_id
        if old is None:
            self._check_new(set_id)
        templates = self._states.templates(old) if old is not None else {}
        entry = self._cluster.workloads.get(WorkloadId(set_id))
        return changes.apply(
            old,
            _request(old, patch, templates),
            templates,
            now=now,
            caller=caller,
            existing=entry.workload if entry is not None else None,
            members_revision=self._members_revision(set_id),
        )

    async def scale(self, set_id: SetId, replicas: int) -> Change:
        if set_id not in self._cluster.sets and WorkloadId(set_id) in self._cluster.workloads:
            raise RefusedError(
                f"{set_id} is a workload, not a set: add `replicas: {replicas}` to its file and apply it"
            )
        return await self._change(
            set_id, lambda old, now: changes.scale(old, set_id, replicas, now=now)
        )

    async def pause(self, set_id: SetId) -> Change:
        return await self._change(set_id, lambda old, now: changes.pause(old, set_id, now=now))

    async def resume(self, set_id: SetId) -> Change:
        return await self._change(set_id, lambda old, now: changes.resume(old, set_id, now=now))

    async def promote(self, set_id: SetId) -> Change:
        return await self._change(set_id, lambda old, now: changes.promote(old, set_id, now=now))

    async def undo(self, set_id: SetId, revision: int) -> Change:
        return await self._change(
            set_id, lambda old, now: changes.undo(old, set_id, revision, now=now)
        )

    async def delete(self, set_id: SetId) -> Change:
        return await self._change(set_id, lambda old, now: changes.delete(old, set_id, now=now))

    async def change(
        self,
        set_id: SetId,
        make: Make,
        *,
        extra_writes: Callable[[Change, Transaction], None] | None = None,
    ) -> Change:
        """Change the record as `make` says, or raise what it raises. `extra_writes` adds to the commit."""
        return await self._change(set_id, make, extra_writes=extra_writes)

    async def _change(
        self,
        set_id: SetId,
        make: Make,
        *,
        extra_writes: Callable[[Change, Transaction], None] | None = None,
    ) -> Change:
        async def attempt() -> Change:
            now = self._clock.now()
            outcome = make(self._cluster.sets.get(set_id), now)
            change = Transaction(done=lambda: None)
            if isinstance(outcome, SetChange):
                change = set_transaction(self._cluster, outcome, now=now)
            if extra_writes is not None:
                extra_writes(outcome, change)
            await self._committer.commit(change)
            if change.is_empty:
                # A commit without changes is not fenced, and another leader may have changed it.
                await self._check_leader()
            return outcome

        outcome = await self._reconciler.run_exclusive(WorkloadId(set_id), attempt)
        if isinstance(outcome, SetChange):
            self._changed(set_id)
        return outcome

    def _check_new(self, set_id: SetId) -> None:
        if why := self._cluster.blocked_because(WorkloadId(set_id)):
            raise QuarantinedError(
                f"set {set_id} cannot be created: {why}; see `persysctl record list`"
            )
        check_id(set_id, self._others)

    def _members_revision(self, set_id: SetId) -> int:
        """The highest revision of members, which a lost record of the set has left."""
        memberships = (
            self._cluster.workloads[workload_id].workload.membership
            for workload_id in self._cluster.members.of(set_id)
        )
        return max((one.revision for one in memberships if one is not None), default=0)


def _request(old: WorkloadSet | None, patch: SetPatch, templates: dict[int, Template]) -> SetApply:
    """A request without a template changes only what it names."""
    if patch.template is not None:
        return SetApply(
            patch.set_id,
            patch.template,
            patch.replicas,
            bool(patch.every_node),
            patch.update or UpdatePolicy(),
            patch.scale,
            patch.desired,
        )
    if old is None:
        raise NotFoundError("set", patch.set_id)
    template = templates.get(old.target)
    if template is None:
        raise RefusedError(
            f"revision {old.target} of set {old.set_id} is not stored: apply the set with its template"
        )
    return SetApply(
        patch.set_id,
        template,
        patch.replicas,
        old.every_node if patch.every_node is None else patch.every_node,
        patch.update or old.update,
        patch.scale or old.scale,
        patch.desired,
    )


def set_transaction(cluster: ClusterState, outcome: SetChange, *, now: datetime) -> Transaction:
    """The records, the events and the update of memory of a change of a set."""
    record, revision = outcome.record, outcome.revision
    set_id = record.set_id
    dropped = [
        number for number in outcome.dropped if f"{set_id}/{number}" in cluster.set_revisions
    ]

    def done() -> None:
        cluster.sets[set_id] = record
        if revision is not None:
            cluster.set_revisions[f"{set_id}/{revision.number}"] = revision
        for number in dropped:
            cluster.set_revisions.pop(f"{set_id}/{number}", None)

    change = Transaction(done=done, puts={keys.set_key(set_id): record})
    if revision is not None:
        change.puts[keys.set_revision_key(set_id, revision.number)] = revision
    change.drops.extend(keys.set_revision_key(set_id, number) for number in dropped)
    change.events.extend(set_event(set_id, event, now=now) for event in outcome.events)
    return change


def set_event(set_id: SetId, event: SetEvent, *, now: datetime, rule: str = "") -> Event:
    """Events of a set have its id in the place of a workload, so that they are found with it."""
    return Event(now, event.kind, event.message, workload_id=set_id, rule=rule)
