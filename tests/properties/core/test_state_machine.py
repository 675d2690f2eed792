"""Scheduler and agents as pure decisions: any order of requests, effects, losses and outages.

One id that is created and deleted repeatedly, and two nodes. `decide` and `classify_order` are the real
functions; the code between them is simplified here.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace as changed

from builders import NOON, a_workload, add_node, rooms_of
from examples import times
from persys.core.agent.admission import AcceptedOrder, Unchanged, classify_order
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import has_data
from persys.core.reconcile.decide import decide
from persys.core.reconcile.dispatch import Dispatch, Goal, answered, unanswered
from persys.core.reconcile.effects import Apply, Effect, Remove
from persys.core.reconcile.situation import Copy, Policy, Situation, satisfies
from persys.model.ids import NodeId, Revision
from persys.model.placement import Tombstone
from persys.model.spec import ContainerSpec, ManagedVolume, WorkloadType
from persys.model.status import Actual, Observation
from persys.model.workload import Desired, Order

NODES = (NodeId("n1"), NodeId("n2"))
STATELESS = ContainerSpec("web")
WITH_DATA = ContainerSpec("db", managed_volumes=(ManagedVolume("data"),))
LIVELINESS_STEPS_MAX = 60
POLICY = Policy()
nodes = st.sampled_from(NODES)
WISHES = [*[Desired.RUNNING] * 5, *[Desired.STOPPED] * 3, Desired.DELETED]


@dataclass
class ModelAgent:
    order: Order | None = None
    runs: bool = False
    deleted_epoch: int = 0
    phase: Phase = Phase.ALIVE


class CoreMachine(RuleBasedStateMachine):
    @initialize(data=st.booleans())
    def begin(self, data: bool) -> None:
        self.now: datetime = NOON
        self.situation: Situation | None = Situation(
            a_workload(spec=WITH_DATA if data else STATELESS)
        )
        self.tombstones: dict[NodeId, Tombstone] = {}
        self.agents = {node_id: ModelAgent() for node_id in NODES}
        self.sent: list[Effect] = []
        self.dispatched: Effect | None = None  # what the dispatch is about
        self.epoch = 0
        self.epochs = count(1)  # the cluster's counter
        self.next_epoch = next(self.epochs)

    @rule(seconds=st.sampled_from([1, 10, 50, 130]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(desired=st.sampled_from(WISHES), revision=st.sampled_from(["r1", "r2"]))
    def user_changes_desired_state(self, desired: Desired, revision: str) -> None:
        if self.situation is None or self.situation.workload.desired is Desired.DELETED:
            return
        workload = changed(self.situation.workload, desired=desired, revision=Revision(revision))
        self.situation = Situation(
            workload, self.situation.assignment, self.situation.workload_status
        )
        self.decide()

    @precondition(lambda self: self.situation is None)
    @rule(data=st.booleans())
    def id_is_reused(self, data: bool) -> None:
        self.situation = Situation(a_workload(spec=WITH_DATA if data else STATELESS))
        self.dispatched = None
        self.decide()

    @rule(node_id=nodes, phase=st.sampled_from(Phase))
    def node_phase_changes(self, node_id: NodeId, phase: Phase) -> None:
        self.agents[node_id].phase = phase
        self.decide()

    @rule()
    def decide(self) -> None:
        if self.situation is None:
            return
        situation = self.observed()
        node_index = NodeIndex()
        for node_id, agent in self.agents.items():
            closed = "" if agent.phase is Phase.ALIVE else "not ready"
            if node_id in self.tombstones:
                closed = "an old copy is to be removed"
            add_node(node_index, node_id, closed=closed, traits={"type:container", "driver:local"})
        decision = decide(situation, rooms_of(node_index), POLICY, now=self.now, roll=0.5)
        if decision.tombstone is not None:
            self.tombstones[decision.tombstone.assignment.node_id] = decision.tombstone
        if decision.assignment is not None:
            assert decision.assignment.node_id not in self.tombstones
            if decision.assignment.epoch == self.next_epoch:
                self.next_epoch = next(self.epochs)
        if decision.forget:
            self.situation = None
            return
        dispatch = None if decision.fulfilled else situation.dispatch
        for effect in decision.effects:
            if isinstance(effect, Apply | Remove):
                wanted = situation.workload.desired
                desired = wanted if isinstance(effect, Apply) else Desired.DELETED
                goal = Goal(situation.workload.revision, desired, effect.epoch)
                dispatch = Dispatch(goal, self.now)
                self.sent.append(effect)
                self.dispatched = effect
        self.situation = replace(
            situation,
            assignment=decision.assignment,
            workload_status=decision.workload_status,
            retry=decision.retry,
            dispatch=dispatch,
        )

    @rule()
    def tombstones_are_sent(self) -> None:
        for node_id, tombstone in self.tombstones.items():
            if self.agents[node_id].phase is Phase.ALIVE:
                self.sent.append(
                    Remove(node_id, tombstone.assignment.workload_id, tombstone.assignment.epoch)
                )

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), answer=st.booleans())
    def an_order_arrives(self, data: st.DataObject, answer: bool) -> None:
        """To any node, so that messages overtake each other; the response may be lost.

        To one node they are sent one by one: what is sent has arrived, or was given up, before the next.
        """
        node_id = data.draw(st.sampled_from(sorted({effect.node_id for effect in self.sent})))
        effect = next(effect for effect in self.sent if effect.node_id == node_id)
        self.sent.remove(effect)
        self.arrive(effect, answer=answer)

    @precondition(lambda self: self.sent)
    @rule()
    def an_order_is_lost(self) -> None:
        self.record_response(self.sent.pop(0), given=False)

    @rule()
    def run_without_faults(self) -> None:
        while self.sent:
            self.arrive(self.sent.pop(0), answer=True)
        for node_id in NODES:
            self.agent_performs_step(node_id)
            self.an_agent_reports(node_id)
        self.decide()

    @rule(node_id=nodes)
    def agent_performs_step(self, node_id: NodeId) -> None:
        agent = self.agents[node_id]
        if agent.order is None:
            return
        agent.runs = agent.order.desired is Desired.RUNNING
        if agent.order.desired is Desired.DELETED:
            agent.deleted_epoch, agent.order = agent.order.epoch, None

    @rule(node_id=nodes)
    def an_agent_reports(self, node_id: NodeId) -> None:
        agent = self.agents[node_id]
        if agent.phase is not Phase.ALIVE:
            return
        tombstone = self.tombstones.get(node_id)
        if (
            tombstone is not None
            and agent.order is None
            and agent.deleted_epoch >= tombstone.assignment.epoch
        ):
            del self.tombstones[node_id]
        bound = self.situation.assignment if self.situation is not None else None
        if self.situation is None or bound is None or bound.node_id != node_id:
            return
        seen = self.observation_of(node_id, agent)
        since = self.situation.observed_since
        old = self.situation.observation
        if old is None or (old.actual, old.epoch) != (seen.actual, seen.epoch):
            since = self.now
        self.situation = replace(self.situation, observation=seen, observed_since=since)

    @invariant()
    def data_runs_once(self) -> None:
        """Copies of an earlier workload with this id, without data, may still run on lost nodes."""
        live = [
            node_id
            for node_id, agent in self.agents.items()
            if agent.runs and agent.order is not None and has_data(agent.order.spec)
        ]
        assert len(live) <= 1, live

    @invariant()
    def epochs_never_decrease(self) -> None:
        bound = self.situation.assignment if self.situation is not None else None
        if bound is not None:
            assert bound.epoch >= self.epoch
            self.epoch = bound.epoch

    @invariant()
    def every_copy_is_on_record(self) -> None:
        bound = self.situation.assignment if self.situation is not None else None
        for node_id, agent in self.agents.items():
            if agent.runs:
                at_home = bound is not None and bound.node_id == node_id
                assert at_home or node_id in self.tombstones, node_id

    def teardown(self) -> None:
        """When all nodes are healthy and nothing is lost any more, everything converges."""
        for agent in getattr(self, "agents", {}).values():
            agent.phase = Phase.ALIVE
        for _ in range(LIVELINESS_STEPS_MAX if hasattr(self, "agents") else 0):
            self.tombstones_are_sent()
            self.decide()
            while self.sent:
                self.arrive(self.sent.pop(0), answer=True)
            for node_id in NODES:
                self.agent_performs_step(node_id)
                self.an_agent_reports(node_id)
            self.now += timedelta(seconds=20)
            if self.is_settled():
                return
        assert not hasattr(self, "agents"), self.situation

    def is_settled(self) -> bool:
        if self.tombstones:
            return False
        live = [node_id for node_id, agent in self.agents.items() if agent.runs]
        if self.situation is None:
            return not live
        workload_status, workload = self.situation.workload_status, self.situation.workload
        runs = workload.desired is Desired.RUNNING
        return (
            workload_status is not None
            and satisfies(workload_status, workload)
            and len(live) == int(runs)
        )

    def arrive(self, effect: Effect, *, answer: bool) -> None:
        agent = self.agents[effect.node_id]
        if isinstance(effect, Apply):
            order = _order(effect)
        elif agent.order is not None and isinstance(effect, Remove):
            order = changed(agent.order, desired=Desired.DELETED, epoch=effect.epoch)
        else:
            if isinstance(effect, Remove):
                agent.deleted_epoch = max(agent.deleted_epoch, effect.epoch)
            self.record_response(effect, given=answer)
            return
        receipt = classify_order(
            order, agent.order, failed=False, deleted_epoch=agent.deleted_epoch, draining=False
        )
        if isinstance(receipt, AcceptedOrder | Unchanged):
            agent.order = receipt.order
        self.record_response(effect, given=answer)

    def record_response(self, effect: Effect, *, given: bool) -> None:
        if (
            self.situation is None
            or self.situation.dispatch is None
            or effect is not self.dispatched
        ):
            return
        dispatch = self.situation.dispatch
        if dispatch.in_flight:
            after = (
                answered(dispatch, now=self.now)
                if given
                else unanswered(dispatch, "no answer", now=self.now)
            )
            self.situation = replace(self.situation, dispatch=after)

    def observed(self) -> Situation:
        assert self.situation is not None
        bound = self.situation.assignment
        copies = tuple(
            Copy(
                node_id,
                tombstone.assignment.epoch,
                being_removed=True,
                lost=self.agents[node_id].phase is not Phase.ALIVE,
            )
            for node_id, tombstone in self.tombstones.items()
            if bound is None or bound.node_id != node_id
        )
        phase = self.agents[bound.node_id].phase if bound is not None else Phase.LOST
        return replace(
            self.situation, phase=phase, reports=True, copies=copies, next_epoch=self.next_epoch
        )

    def observation_of(self, node_id: NodeId, agent: ModelAgent) -> Observation:
        assert self.situation is not None
        if agent.order is None:
            return Observation(self.situation.workload.id, node_id, Actual.ABSENT, self.now)
        wanted = agent.order.desired is Desired.RUNNING
        actual = Actual.PENDING if wanted != agent.runs else Actual.STOPPED
        return Observation(
            agent.order.workload_id,
            node_id,
            Actual.RUNNING if wanted and agent.runs else actual,
            self.now,
            revision=agent.order.revision,
            epoch=agent.order.epoch,
        )


def _order(effect: Apply) -> Order:
    workload = effect.workload
    return Order(
        workload.id,
        WorkloadType.CONTAINER,
        workload.revision,
        effect.epoch,
        workload.desired,
        workload.spec,
    )


def test_no_order_of_events_makes_two_copies_of_data_or_leaves_anything_unfinished() -> None:
    run_state_machine_as_test(
        CoreMachine, settings=settings(max_examples=times(3), stateful_step_count=40, deadline=None)
    )
