"""The loop of the leader over all sets: read memory, decide, store the record, change the members.

A set is decided when a member, a node or its record has changed, or when its decision asks for it. A pass
costs as much as the set has members, so the next one begins not before ten times the duration of the last:
changes in the meantime share it. Each set has passes of its own, and an error in one affects no other set.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from heapq import heappop, heappush

import structlog

from persys.core.intent.apply import Accepted, Unchanged, change_desired
from persys.core.intent.ownership import Owners, check_id
from persys.core.sets.members import member_id, member_workload
from persys.core.sets.rollout import decide
from persys.core.sets.situation import MemberIntent, SetDecision
from persys.errors import FencedError, NotFoundError, PersysError, RefusedError
from persys.infra.aio.supervisor import KeyedWork
from persys.infra.clock import Clock
from persys.infra.failpoints import failpoint
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.sets import SetId, Template, WorkloadSet
from persys.model.workload import Desired, Workload
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.reconcile.change_batches import WorkloadChange
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.sets.member_states import MemberStates, is_replaceable
from persys.scheduler.sets.sets import set_event
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.members import is_member
from persys.store import keys

log = structlog.get_logger()

PASSES_MAX = 8  # at the same time
PAUSE_FACTOR = 10  # times the duration of the last pass
PAUSE_SECONDS_MIN = 0.02
RETRY_SECONDS = 1.0  # after a change that failed
IDLE_SECONDS = 60.0  # in case a change was missed


@dataclass(slots=True)
class _Schedule:
    due_at: float = math.inf  # on the monotonic clock, as all here
    not_before: float = 0.0
    is_running: bool = False


class SetController:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        reconciler: Reconciler,
        states: MemberStates,
        clock: Clock,
        *,
        may_act: Callable[[], bool],
        work: KeyedWork[str],
        metrics: Metrics,
    ) -> None:
        """`may_act`: the mode is normal and this scheduler leads."""
        self._cluster = cluster
        self._committer = committer
        self._reconciler = reconciler
        self._states = states
        self._clock = clock
        self._may_act = may_act
        self._work = work
        self._metrics = metrics
        self._owners = Owners(cluster.sets, cluster.jobs, cluster.runs)
        self._schedules: dict[str, _Schedule] = {}
        self._queue: list[tuple[float, str]] = []  # entries that are not due any more are skipped
        self._wakeup = asyncio.Event()
        self._running_count = 0
        self._nodes_changed = False
        self._problems: dict[str, str] = {}
        self.passes = 0

    def problem(self, set_id: str) -> str:
        """Why the last pass of the set ended early; "" if it did not."""
        return self._problems.get(set_id, "")

    def wake(self, set_id: str) -> None:
        """The set has changed."""
        self._due(set_id, self._clock.monotonic())

    def wake_all(self) -> None:
        for set_id in self._cluster.sets:
            self.wake(set_id)

    def member_changed(self, workload: Workload) -> None:
        """On the path of every decision about a member."""
        membership = workload.membership
        if membership is not None and not membership.job_id:
            self._states.member_changed(workload.id)
            self._due(membership.owner, self._clock.monotonic())

    def node_changed(self, node_id: NodeId) -> None:
        """A set with one member per node may need another one, or one less."""
        self._states.node_changed(node_id)
        self._nodes_changed = True
        self._wakeup.set()

    def begin_to_lead(self) -> None:
        self._states.begin_to_lead()
        self.wake_all()

    async def run(self) -> None:
        """Without sets it waits for one, and no timer runs."""
        self._schedules.clear()
        self._queue.clear()
        self._running_count = 0
        self.wake_all()
        async with asyncio.TaskGroup() as group:
            while True:
                self._wakeup.clear()
                self._wake_per_node()
                while (set_id := self._next_due()) is not None:
                    self._running_count += 1
                    group.create_task(self._contained(set_id))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._wakeup.wait()

    def _wake_per_node(self) -> None:
        """Wake the sets with one member per node, once for all nodes that have changed."""
        if self._nodes_changed:
            self._nodes_changed = False
            for set_id, record in self._cluster.sets.items():
                if record.every_node:
                    self.wake(set_id)

    def _due(self, set_id: str, at: float) -> None:
        schedule = self._schedules.get(set_id)
        if schedule is None:
            schedule = self._schedules[set_id] = _Schedule()
        at = max(at, schedule.not_before)
        if at >= schedule.due_at:
            return
        schedule.due_at = at
        if not schedule.is_running:  # else it is queued when its pass ends
            heappush(self._queue, (at, set_id))
            self._wakeup.set()

    def _next_due(self) -> str | None:
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now and self._running_count < PASSES_MAX:
            at, set_id = heappop(self._queue)
            schedule = self._schedules.get(set_id)
            if schedule is None or schedule.due_at != at or schedule.is_running:
                continue
            if wait := self._work.due_in(set_id):
                schedule.due_at = math.inf
                self._due(set_id, now + wait)
                continue
            schedule.due_at, schedule.is_running = math.inf, True
            return set_id
        return None

    def _pause(self) -> float | None:
        """Until the next set is due; None: until a wake-up."""
        if not self._queue or self._running_count >= PASSES_MAX:
            return None
        return max(0.001, self._queue[0][0] - self._clock.monotonic())

    async def _contained(self, set_id: str) -> None:
        """An unexpected error, and an expected one such as a lost race, costs this set one pass."""
        again_at = math.inf
        try:
            with self._work.contain(set_id):
                again_at = await self._pass(set_id)
                self._problems.pop(set_id, None)
        except FencedError:
            raise
        except PersysError as err:
            if self._problems.get(set_id) != str(err):
                log.warning("set.pass_ended", set_id=set_id, reason=str(err))
            self._problems[set_id] = str(err)
            again_at = self._clock.monotonic() + RETRY_SECONDS
        finally:
            self._running_count -= 1
            self._ended(set_id, again_at)

    def _ended(self, set_id: str, again_at: float) -> None:
        schedule = self._schedules.setdefault(set_id, _Schedule())
        schedule.is_running = False
        if set_id not in self._cluster.sets:
            del self._schedules[set_id]
            self._problems.pop(set_id, None)
            self._work.forget(set_id)
            self._wakeup.set()
            return
        changed_at, schedule.due_at = schedule.due_at, math.inf
        idle_at = self._clock.monotonic() + max(IDLE_SECONDS, self._work.due_in(set_id))
        self._due(set_id, min(changed_at, again_at, idle_at))
        self._wakeup.set()

    async def _pass(self, set_id: str) -> float:
        """Returns when the set has to be decided again."""
        while self._may_act():
            record = self._cluster.sets.get(set_id)
            if record is None:
                return math.inf
            self.passes += 1
            decision, now = self._decide(record)
            if decision.record is None:
                await self._drop(record, decision, now)
                return math.inf
            if (decision.record != record or decision.events) and not await self._store(
                record, decision.record, decision, now
            ):
                continue  # a user was faster
            failpoint("set-record-stored")
            if not await self._change_members(decision.record, decision):
                return self._clock.monotonic() + RETRY_SECONDS
            if decision.delete_replaced:
                return self._clock.monotonic()  # it is not a member, so its deletion wakes nothing
            if decision.wake_at is None:
                return math.inf
            is_cut = bool(decision.put or decision.delete) and decision.wake_at <= now
            if not is_cut:
                left = (decision.wake_at - self._clock.now()).total_seconds()
                return self._clock.monotonic() + max(0.0, left)
        return self._clock.monotonic() + RETRY_SECONDS

    def _decide(self, record: WorkloadSet) -> tuple[SetDecision, datetime]:
        began, now = self._clock.monotonic(), self._clock.now()
        decision = decide(self._states.situation(record), now)
        ended = self._clock.monotonic()
        pause = max(PAUSE_SECONDS_MIN, PAUSE_FACTOR * (ended - began))
        self._schedules.setdefault(record.set_id, _Schedule()).not_before = ended + pause
        return decision, now

    async def _store(
        self, old: WorkloadSet, new: WorkloadSet, decision: SetDecision, now: datetime
    ) -> bool:
        """False: a user has changed the set since the decision."""
        set_id = old.set_id

        async def attempt() -> bool:
            if self._cluster.sets.get(set_id) is not old:
                return False
            events = [
                set_event(set_id, event, now=now, rule=decision.rule) for event in decision.events
            ]
            await self._committer.commit(
                Transaction(
                    done=lambda: self._cluster.sets.__setitem__(set_id, new),
                    puts={keys.set_key(set_id): new} if new != old else {},
                    events=events,
                )
            )
            return True

        stored = await self._reconciler.run_exclusive(WorkloadId(set_id), attempt)
        if stored:
            self._note(old, new, decision)
        return stored

    def _note(self, old: WorkloadSet, new: WorkloadSet, decision: SetDecision) -> None:
        """Log and count what has changed in the rollout."""
        for event in decision.events:
            self._metrics.rollout_changed(event.kind)
        if new.rollout.phase is not old.rollout.phase:
            log.info(
                "set.phase_changed",
                set_id=new.set_id,
                phase=new.rollout.phase,
                rule=decision.rule,
                revision=new.target,
                reason=new.rollout.reason,
            )

    async def _drop(self, record: WorkloadSet, decision: SetDecision, now: datetime) -> None:
        """The set is deleted and has no members: delete its records."""
        set_id = record.set_id
        stored = self._cluster.set_revisions
        numbers = [number for number in record.revisions if f"{set_id}/{number}" in stored]

        def done() -> None:
            self._cluster.sets.pop(set_id, None)
            for number in numbers:
                stored.pop(f"{set_id}/{number}", None)

        async def attempt() -> None:
            if self._cluster.sets.get(set_id) is not record:
                return
            await self._committer.commit(
                Transaction(
                    done=done,
                    drops=[
                        keys.set_key(set_id),
                        *(keys.set_revision_key(set_id, number) for number in numbers),
                    ],
                    events=[
                        set_event(set_id, event, now=now, rule=decision.rule)
                        for event in decision.events
                    ],
                )
            )

        await self._reconciler.run_exclusive(WorkloadId(set_id), attempt)
        log.info("set.deleted", set_id=set_id)

    async def _change_members(self, record: WorkloadSet, decision: SetDecision) -> bool:
        """Create and update members, then delete others. False: at least one change failed."""
        now, templates = self._clock.now(), self._states.templates(record)
        for number in {intent.revision for intent in decision.put} - templates.keys():
            raise RefusedError(
                f"revision {number} of set {record.set_id} is not stored: apply the set with its template"
            )
        puts = [
            WorkloadChange(
                member_id(record.set_id, intent.number),
                partial(self._put, record, templates[intent.revision], intent, now),
            )
            for intent in decision.put
        ]
        deletes = [
            WorkloadChange(workload_id, partial(self._deleted, record.set_id, workload_id, now))
            for workload_id in decision.delete
        ]
        if decision.delete_replaced and record.replaces:
            transition = partial(self._replaced_deleted, record.replaces, now)
            deletes.append(WorkloadChange(record.replaces, transition))
        failed = await self._reconciler.submit_members(puts) if puts else {}
        failpoint("set-members-put")
        if deletes and self._may_act():
            failed |= await self._reconciler.submit_members(deletes)
        lasting = {name: err for name, err in failed.items() if not isinstance(err, NotFoundError)}
        for workload_id, err in list(lasting.items())[:8]:
            log.warning(
                "set.member_not_changed",
                set_id=record.set_id,
                workload_id=workload_id,
                reason=str(err),
                failed=len(lasting),
            )
        return not lasting

    def _put(
        self,
        record: WorkloadSet,
        template: Template,
        intent: MemberIntent,
        now: datetime,
        old: Workload | None,
    ) -> Accepted | Unchanged:
        if old is None:
            check_id(member_id(record.set_id, intent.number), self._owners)
        else:
            _check_member(old, record.set_id)
            if old.desired is Desired.DELETED:
                raise RefusedError(f"workload {old.id} is being deleted")
        new = member_workload(record, template, intent, old, now)
        if new is old:
            return Unchanged(new)
        return Accepted(new, _event_of(old, new))

    def _deleted(
        self, set_id: SetId, workload_id: WorkloadId, now: datetime, old: Workload | None
    ) -> Accepted | Unchanged:
        if old is not None:
            _check_member(old, set_id)
        return change_desired(old, workload_id, Desired.DELETED, now=now)

    def _replaced_deleted(
        self, workload_id: WorkloadId, now: datetime, old: Workload | None
    ) -> Accepted | Unchanged:
        if old is not None and not is_replaceable(old):
            return Unchanged(old)
        return change_desired(old, workload_id, Desired.DELETED, now=now)


def _check_member(workload: Workload, set_id: SetId) -> None:
    if not is_member(workload, set_id):
        raise RefusedError(f"workload {workload.id} exists and is not a member of set {set_id}")


def _event_of(old: Workload | None, new: Workload) -> EventKind:
    if old is None:
        return EventKind.WORKLOAD_CREATED
    if old.revision == new.revision and old.desired is not new.desired:
        starts = new.desired is Desired.RUNNING
        return EventKind.WORKLOAD_START_ASKED if starts else EventKind.WORKLOAD_STOP_ASKED
    return EventKind.WORKLOAD_UPDATED
