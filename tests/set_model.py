"""A small cluster for properties of sets: members start, pass, fail, crash, get lost and return.

Each pass checks what must hold after every single change of a decision, which may be cut after any of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from random import Random

from msgspec.structs import replace as replace_record

from persys.core.sets import changes
from persys.core.sets.changes import SetChange, Unchanged
from persys.core.sets.rollout import CHANGES_MAX, decide
from persys.core.sets.situation import (
    MemberHealth,
    MemberIntent,
    MemberState,
    SetDecision,
    SetEvent,
    SetSituation,
)
from persys.errors import RefusedError
from persys.model import ids
from persys.model.event import EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.sets import OnFailure, Phase, Template, UpdatePolicy, WorkloadSet
from persys.model.workload import Desired
from set_builders import NOW, WEB, a_template, an_apply

BOOT = timedelta(seconds=5)
REMOVAL = timedelta(seconds=3)
LATE = timedelta(seconds=40)


class Behaviour(StrEnum):
    """What the members of a revision do when they are started."""

    GOOD = "good"
    UNHEALTHY = "unhealthy"
    FAILED = "failed"
    SLOW = "slow"  # never healthy
    LOOP = "loop"  # restarts again and again
    LATE = "late"  # unhealthy after a while


NEVER_HEALTHY = (Behaviour.UNHEALTHY, Behaviour.FAILED, Behaviour.SLOW, Behaviour.LOOP)


@dataclass
class Member:
    state: MemberState
    before_loss: MemberHealth = MemberHealth.STARTING
    was_lost: bool = False  # since its last change


class Cluster:
    def __init__(self, random: Random, *, faults: bool = True, behaviours: bool = True) -> None:
        self.random = random
        self.now: datetime = NOW
        self.faults = faults
        self.with_data = random.random() < 0.5
        self.behaviours = tuple(Behaviour) if behaviours else (Behaviour.GOOD,)
        self.templates: dict[int, Template] = {}
        self.behaviour: dict[str, Behaviour] = {}
        self.members: dict[int, Member] = {}
        self.nodes: list[NodeId] = []
        self.taken = frozenset(random.sample(range(6), k=random.choice([0, 0, 1])))
        self.rollbacks = 0
        self.events: list[SetEvent] = []
        self.record = self._created()

    def create(
        self, replicas: int, update: UpdatePolicy, first: Behaviour, *, data: bool = False
    ) -> None:
        """Replace the random set by this one, which is created now."""
        self.with_data, self.members, self.templates, self.nodes = data, {}, {}, []
        request = an_apply(self._template(first), replicas=replicas, update=update)
        change = changes.apply(None, request, {}, now=self.now)
        assert isinstance(change, SetChange)
        self._store(change)

    def _created(self) -> WorkloadSet:
        random = self.random
        every_node = random.random() < 0.2
        replicas = random.randint(1, 6)
        if every_node:
            self.nodes = [NodeId(f"n{number}") for number in range(replicas)]
        canary = random.choice([0, 0, 1, 2])
        update = UpdatePolicy(
            max_parallel=random.choice([1, 1, 2, 3]),
            min_healthy_seconds=random.choice([0, 10]),
            healthy_deadline_seconds=60,
            on_failure=random.choice([*OnFailure]),
            canary=min(canary, replicas),
            bake_seconds=random.choice([0, 30]) if canary else 0,
        )
        request = an_apply(
            self._template(Behaviour.GOOD if random.random() < 0.7 else None),
            replicas=None if every_node else replicas,
            every_node=every_node,
            update=update,
        )
        change = changes.apply(None, request, {}, now=self.now)
        assert isinstance(change, SetChange)
        self.record = change.record
        self._store(change)
        return change.record

    @property
    def size(self) -> int:
        return len(self.nodes) if self.record.every_node else self.record.replicas

    @property
    def situation(self) -> SetSituation:
        members = tuple(member.state for member in self.members.values())
        return SetSituation(
            self.record, self.templates, members, self.taken, nodes=tuple(self.nodes)
        )

    def step(self) -> None:
        self._pass_time(self.random.choice([1, 2, 5, 10, 30]))
        if self.faults and self.random.random() < 0.3:
            self._fault()
        if self.random.random() < 0.15:
            self._command()
        self.decide()

    def _command(self) -> None:
        commands: list[Callable[[], SetChange | Unchanged]] = [
            lambda: self._template_change(self._template()),
            lambda: self._template_change(self._template()),
            self._scale,
            lambda: changes.pause(self.record, WEB, now=self.now),
            lambda: changes.resume(self.record, WEB, now=self.now),
            lambda: changes.promote(self.record, WEB, now=self.now),
            self._undo,
        ]
        try:
            change = self.random.choice(commands)()
        except RefusedError:
            return
        if isinstance(change, Unchanged):
            return
        if change.record.target != self.record.target:
            self.rollbacks = 0
        self._store(change)

    def _template(self, behaviour: Behaviour | None = None) -> Template:
        template = a_template(f"image:{len(self.behaviour)}", data=self.with_data)
        self.behaviour[template.revision] = behaviour or self.random.choice(self.behaviours)
        return template

    def apply_template(self, behaviour: Behaviour) -> None:
        change = self._template_change(self._template(behaviour))
        assert isinstance(change, SetChange)
        self.rollbacks = 0
        self._store(change)

    def scale(self, replicas: int) -> None:
        change = changes.scale(self.record, WEB, replicas, now=self.now)
        assert isinstance(change, SetChange)
        self._store(change)

    def resume(self) -> None:
        change = changes.resume(self.record, WEB, now=self.now)
        assert isinstance(change, SetChange)
        self._store(change)

    def with_update(self, **policy: object) -> WorkloadSet:
        return replace_record(self.record, update=replace_record(self.record.update, **policy))

    def break_revision(self, number: int) -> None:
        """From now on, members that start with this revision do not become healthy."""
        self.behaviour[self.templates[number].revision] = Behaviour.UNHEALTHY

    def repair_revision(self, number: int) -> None:
        """From now on, also members that run it are healthy."""
        self.behaviour[self.templates[number].revision] = Behaviour.GOOD
        for member in self.members.values():
            if member.state.revision == number:
                member.state = replace(
                    member.state, health=MemberHealth.STARTING, final=False, restarts=0
                )

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.decide(cut=False)
            self._pass_time(1)

    def _template_change(self, template: Template) -> SetChange | Unchanged:
        request = an_apply(template, every_node=self.record.every_node, update=self.record.update)
        return changes.apply(self.record, request, self.templates, now=self.now)

    def _scale(self) -> SetChange | Unchanged:
        if self.record.every_node:
            self.nodes = [NodeId(f"n{number}") for number in range(self.random.randint(0, 7))]
            return Unchanged(self.record)
        return changes.scale(self.record, WEB, self.random.randint(0, 7), now=self.now)

    def _undo(self) -> SetChange | Unchanged:
        number = self.random.choice([0, 0, *self.record.revisions])
        return changes.undo(self.record, WEB, number, now=self.now)

    def _store(self, change: SetChange) -> None:
        self.record = change.record
        if change.revision is not None:
            self.templates[change.revision.number] = change.revision.template
        for number in change.dropped:
            del self.templates[number]
        assert set(self.record.revisions) == set(self.templates)
        assert {self.record.target, self.record.stable} - {0} <= set(self.templates)

    def _fault(self) -> None:
        live = [
            one for one in self.members.values() if one.state.health is not MemberHealth.DELETING
        ]
        if not live:
            return
        member = self.random.choice(live)
        health = member.state.health
        match self.random.randint(0, 3):
            case 0 if health is not MemberHealth.LOST:
                self.lose(member)
            case 1 if health is MemberHealth.LOST:
                self._return(member)
            case 2 if health is MemberHealth.LOST and not self.with_data:
                self._fail_over(member)
            case 3 if health is MemberHealth.HEALTHY:
                self._crash(member)

    def lose_any(self) -> None:
        if live := [self.members[one.number] for one in self.live()]:
            self.lose(self.random.choice(live))

    def return_any(self) -> None:
        lost = [one.number for one in self.live() if one.health is MemberHealth.LOST]
        if lost:
            self._return(self.members[self.random.choice(lost)])

    def lose(self, member: Member) -> None:
        member.before_loss, member.was_lost = member.state.health, True
        member.state = replace(
            member.state, health=MemberHealth.LOST, waiting_since=self.now, healthy_since=None
        )

    def _return(self, member: Member) -> None:
        healthy = member.before_loss is MemberHealth.HEALTHY
        member.state = replace(
            member.state,
            health=MemberHealth.HEALTHY if healthy else MemberHealth.STARTING,
            waiting_since=self.now,
            healthy_since=self.now if healthy else None,
        )

    def _fail_over(self, member: Member) -> None:
        member.state = replace(
            member.state, health=MemberHealth.STARTING, waiting_since=self.now, restarts=0
        )

    def _crash(self, member: Member) -> None:
        member.state = replace(
            member.state,
            health=self.random.choice([MemberHealth.STARTING, MemberHealth.FAILED]),
            waiting_since=self.now,
            healthy_since=None,
            restarts=member.state.restarts + 1,
            reason="it crashed",
        )

    def _pass_time(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        for number, member in list(self.members.items()):
            state = member.state
            if state.health is MemberHealth.DELETING:
                if state.waiting_since + REMOVAL <= self.now:
                    del self.members[number]
            elif state.health is not MemberHealth.LOST:
                member.state = self._advanced(state)

    def _advanced(self, state: MemberState) -> MemberState:
        behaviour = self._behaviour_of(state)
        if state.health is MemberHealth.HEALTHY:
            assert state.healthy_since is not None
            if behaviour is Behaviour.LATE and state.healthy_since + LATE <= self.now:
                return replace(
                    state,
                    health=MemberHealth.UNHEALTHY,
                    waiting_since=self.now,
                    healthy_since=None,
                )
            return replace(state, waiting_since=self.now)
        if state.waiting_since + BOOT > self.now or state.health is MemberHealth.UNHEALTHY:
            return state
        match behaviour:
            case Behaviour.GOOD | Behaviour.LATE:
                return replace(
                    state,
                    health=MemberHealth.HEALTHY,
                    healthy_since=self.now,
                    waiting_since=self.now,
                )
            case Behaviour.UNHEALTHY:
                return replace(state, health=MemberHealth.UNHEALTHY)
            case Behaviour.FAILED:
                return replace(state, health=MemberHealth.FAILED, final=True)
            case Behaviour.LOOP:
                return replace(state, restarts=state.restarts + 1)
            case Behaviour.SLOW:
                return state

    def _behaviour_of(self, state: MemberState) -> Behaviour:
        template = self.templates.get(state.revision)
        return self.behaviour[template.revision] if template else Behaviour.GOOD

    def decide(self, *, cut: bool = True) -> SetDecision:
        decision = decide(self.situation, self.now)
        assert decision.record is not None
        assert len(decision.put) + len(decision.delete) <= CHANGES_MAX
        self._count(decision)
        before = self.record
        self.record = decision.record
        pending: list[MemberIntent | WorkloadId] = [*decision.put, *decision.delete]
        if cut and self.random.random() < 0.3:
            pending = pending[: self.random.randint(0, len(pending))]
        is_whole = len(pending) == len(decision.put) + len(decision.delete)
        for change in pending:
            self._change(change)
        if is_whole:
            self._check_decided_again(before)
        return decision

    def _count(self, decision: SetDecision) -> None:
        for event in decision.events:
            if event.kind is EventKind.ROLLOUT_ROLLED_BACK:
                self.rollbacks += 1
            self.events.append(event)
        assert self.rollbacks <= 1, "a second automatic rollback"

    def _change(self, change: MemberIntent | WorkloadId) -> None:
        before = self._healthy()
        if isinstance(change, MemberIntent):
            self._put(change)
        else:
            self._delete(change)
        after = self._healthy()
        if after < before:
            assert len(after) >= self.size - self.record.update.max_parallel, "too few healthy ones"
        if isinstance(change, MemberIntent):
            self._check_spread(change.revision)

    def _healthy(self) -> set[object]:
        """The healthy indexes; of a set with one member per node, the healthy nodes that should have one."""
        live = [one.state for one in self.members.values()]
        found: set[object] = {
            one.pinned_node if self.record.every_node else one.index
            for one in live
            if one.health is MemberHealth.HEALTHY
        }
        return found & set(self.nodes) if self.record.every_node else found

    def _put(self, intent: MemberIntent) -> None:
        workload_id = ids.workload_id(f"{WEB}-{intent.number}")
        old = self.members.get(intent.number)
        if old is None:
            assert intent.number not in self.taken, "the id of another workload"
            self._check_not_replaced_twice(intent)
        else:
            assert old.state.health is not MemberHealth.DELETING
            assert old.state.index == intent.index, "the index of a member never changes"
        is_lost = old is not None and old.state.health is MemberHealth.LOST
        state = MemberState(
            workload_id,
            intent.number,
            intent.index,
            intent.revision,
            intent.desired,
            MemberHealth.LOST if is_lost else MemberHealth.STARTING,
            waiting_since=self.now,
            changed_at=self.now,
            pinned_node=intent.pinned_node,
        )
        self.members[intent.number] = Member(state, was_lost=is_lost)

    def _delete(self, workload_id: WorkloadId) -> None:
        (member,) = (one for one in self.members.values() if one.state.workload_id == workload_id)
        assert member.state.health is not MemberHealth.DELETING
        member.state = replace(
            member.state,
            desired=Desired.DELETED,
            health=MemberHealth.DELETING,
            waiting_since=self.now,
            changed_at=self.now,
            healthy_since=None,
        )

    def _check_not_replaced_twice(self, intent: MemberIntent) -> None:
        same = [one for one in self.live() if one.index == intent.index]
        assert all(one.revision != intent.revision for one in same), "a second replacement"
        if self.with_data:
            others = [one.state for one in self.members.values()]
            assert not [one for one in others if one.index == intent.index], "data is in use"
            assert self.taken or intent.number == intent.index, "its volume has another number"

    def _check_spread(self, number: int) -> None:
        """A revision that is never healthy is on few members. Those that were lost are not counted."""
        update, stable = self.record.update, self.record.stable
        is_bad = self.behaviour[self.templates[number].revision] in NEVER_HEALTHY
        if is_bad and stable not in (0, number):
            spread = [
                one
                for one in self.members.values()
                if one.state.revision == number and not one.was_lost
            ]
            assert len(spread) <= max(update.max_parallel, update.canary), "it spreads"

    def _check_decided_again(self, before: WorkloadSet) -> None:
        again = decide(self.situation, self.now)
        assert not again.put
        assert not again.delete
        assert not again.events
        assert again.record == self.record, f"{before} {self.record} {again.record}"
        if again.wake_at is not None:
            assert again.wake_at >= self.now

    def live(self) -> Iterator[MemberState]:
        for member in self.members.values():
            if member.state.health is not MemberHealth.DELETING:
                yield member.state

    def calm(self) -> None:
        """All nodes return, and nothing fails any more that is not the fault of a revision."""
        self.faults = False
        for member in self.members.values():
            if member.state.health is MemberHealth.LOST:
                self._return(member)

    def settle(self, seconds_max: int = 3600) -> None:
        """Until the set is steady, paused or waits for a promotion."""
        deadline = self.now + timedelta(seconds=seconds_max)
        while not self.is_settled():
            assert self.now < deadline, f"{self.record.rollout} {list(self.live())}"
            self.decide(cut=False)
            self._pass_time(1)

    def is_settled(self) -> bool:
        phase = self.record.rollout.phase
        if phase is Phase.STEADY:
            at_target = [one for one in self.live() if one.revision == self.record.target]
            is_quiet = len(self.members) == len(at_target) == self.size
            return is_quiet and decide(self.situation, self.now).record == self.record
        if phase is Phase.PAUSED:
            return True
        return phase is Phase.CANARY and not self.record.update.bake_seconds
