"""A workload that returns to tier 0 runs all the time, whatever fails and whenever the leader changes."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from builders import NOON, a_workload, add_node
from examples import times
from persys.core.nodes import Phase
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.placer import BEING_REMOVED, excluding_nodes, placer_over
from persys.core.reconcile.decide import decide
from persys.core.reconcile.dispatch import Dispatch, Goal
from persys.core.reconcile.effects import Apply
from persys.core.reconcile.situation import Copy, Decision, Policy, Situation
from persys.model.ids import NodeId
from persys.model.placement import Assignment, Offload, Rules, Tombstone
from persys.model.status import (
    Actual,
    Failure,
    FailureReason,
    Observation,
    Retry,
    Status,
    WorkloadStatus,
)

WEB = a_workload(rules=Rules(offload=Offload.WHEN_FULL, return_when_free=True))
HOME, FAR = NodeId("n1"), NodeId("far")
CRASHED = Failure(FailureReason.RUNTIME_ERROR, "exit code 1")
events = st.lists(
    st.sampled_from(
        [
            "home runs",
            "home fails",
            "home is lost",
            "home is back",
            "far is lost",
            "far is back",
            "leader changes",
            "a minute passes",
            "ten minutes pass",
        ]
    ),
    max_size=30,
)


@dataclass
class World:
    """The records of one workload, its leader, and two nodes that follow orders."""

    now: datetime = NOON
    assignment: Assignment | None = None
    status: WorkloadStatus | None = None
    retry: Retry | None = None
    tombstones: dict[NodeId, Tombstone] = field(default_factory=dict)
    dispatch: Dispatch | None = None  # only in the memory of the leader
    copies: dict[NodeId, tuple[int, Actual]] = field(default_factory=dict)
    lost: set[NodeId] = field(default_factory=set)
    node_index: NodeIndex = field(default_factory=NodeIndex)

    def __post_init__(self) -> None:
        add_node(self.node_index, FAR, tier=1)
        self.now += timedelta(seconds=30)
        self.status = WorkloadStatus(WEB.id, Status.PENDING, NOON)
        self.settle()
        add_node(self.node_index, HOME)

    def happen(self, event: str) -> None:
        match event:
            case "home runs" | "home fails":
                epoch, actual = self.copies.get(HOME, (0, Actual.ABSENT))
                if actual is Actual.PENDING:
                    runs = event == "home runs"
                    self.copies[HOME] = (epoch, Actual.RUNNING if runs else Actual.FAILED)
            case "leader changes":
                self.dispatch = None
            case "a minute passes":
                self.now += timedelta(minutes=1)
            case "ten minutes pass":
                self.now += timedelta(minutes=10)
            case "far is lost" if self.assignment is not None and self.assignment.node_id == FAR:
                return  # then it moves like from any lost node
            case _:
                node_id = HOME if event.startswith("home") else FAR
                (self.lost.add if event.endswith("lost") else self.lost.discard)(node_id)
                self.node_index.close(node_id, "not ready" if node_id in self.lost else "")
        self.settle()

    def settle(self) -> None:
        """Decide until nothing changes, and carry out the orders."""
        for _ in range(10):
            before = self._records(), dict(self.tombstones), dict(self.copies)
            self._commit(self._decide())
            self._remove()
            if before == (self._records(), self.tombstones, self.copies):
                return
            self.now += timedelta(seconds=1)
        raise AssertionError(f"it oscillates: {self.assignment}, {self.status}")

    def _records(self) -> tuple[Assignment | None, WorkloadStatus | None, Retry | None]:
        return self.assignment, self.status, self.retry

    def _decide(self) -> Decision:
        bound = self.assignment
        situation = Situation(
            WEB,
            bound,
            self.status,
            self.retry,
            self._observation(),
            dispatch=self.dispatch,
            phase=Phase.LOST if bound is not None and bound.node_id in self.lost else Phase.ALIVE,
            reports=True,
            copies=tuple(
                Copy(
                    node_id,
                    one.assignment.epoch,
                    being_removed=True,
                    lost=node_id in self.lost,
                    kept=one if one.after_running else None,
                )
                for node_id, one in sorted(self.tombstones.items())
            ),
            next_epoch=(bound.epoch if bound is not None else 0) + 1,
            tier=self.node_index.slots[bound.node_id].tier if bound is not None else 0,
            may_return=True,
        )
        hidden = dict.fromkeys(self.tombstones, BEING_REMOVED)
        with excluding_nodes(hidden, self.node_index):
            return decide(situation, placer_over(self.node_index), Policy(), now=self.now, roll=0.5)

    def _observation(self) -> Observation | None:
        if self.assignment is None or self.assignment.node_id in self.lost:
            return None
        node_id = self.assignment.node_id
        epoch, actual = self.copies.get(node_id, (0, Actual.ABSENT))
        failure = CRASHED if actual is Actual.FAILED else None
        return Observation(
            WEB.id, node_id, actual, self.now, WEB.revision, epoch=epoch, failure=failure
        )

    def _commit(self, decision: Decision) -> None:
        if decision.released is not None:
            assert decision.assignment is not None
            assert self.copies[decision.assignment.node_id][1] is Actual.RUNNING
        for tombstone in (decision.tombstone, decision.released):
            if tombstone is not None:
                self.tombstones[tombstone.assignment.node_id] = tombstone
        if decision.restored is not None:
            assert decision.assignment is not None
            assert decision.assignment.node_id == FAR
            del self.tombstones[FAR]
        self.assignment, self.status = decision.assignment, decision.workload_status
        self.retry = decision.retry
        assert sum(one.after_running for one in self.tombstones.values()) <= 1
        for effect in decision.effects:
            if isinstance(effect, Apply):
                goal = Goal(WEB.revision, WEB.desired, effect.epoch)
                self.dispatch = Dispatch(goal, self.now, answered_at=self.now)
                self._apply(effect)

    def _apply(self, order: Apply) -> None:
        """The remote cluster starts it at once; a running copy gets the new epoch."""
        if order.node_id in self.lost:
            return
        _, actual = self.copies.get(order.node_id, (0, Actual.ABSENT))
        if actual is not Actual.RUNNING:
            actual = Actual.RUNNING if order.node_id == FAR else Actual.PENDING
        self.copies[order.node_id] = (order.epoch, actual)

    def _remove(self) -> None:
        for node_id, tombstone in list(self.tombstones.items()):
            if not tombstone.after_running and node_id not in self.lost:
                self.copies.pop(node_id, None)
                del self.tombstones[node_id]


@settings(max_examples=times(2), deadline=None)
@given(events)
def test_a_copy_runs_all_the_time(happened: list[str]) -> None:
    world = World()
    for event in happened:
        world.happen(event)

        assert Actual.RUNNING in {actual for _, actual in world.copies.values()}


@settings(max_examples=times(2), deadline=None)
@given(events)
def test_it_runs_in_tier_0_alone_when_all_is_well_again(happened: list[str]) -> None:
    world = World()
    for event in happened:
        world.happen(event)
    for event in ["home is back", "far is back", *["home runs", "ten minutes pass"] * 6]:
        world.happen(event)

    assert world.assignment is not None
    assert world.status is not None
    assert (world.assignment.node_id, world.status.status) == (HOME, Status.RUNNING)
    assert not world.tombstones
    assert list(world.copies) == [HOME]


def test_the_model_offloads_first_and_then_returns() -> None:
    world = World()
    assert list(world.copies) == [FAR]

    world.happen("leader changes")
    assert world.copies == {FAR: (1, Actual.RUNNING), HOME: (2, Actual.PENDING)}

    world.happen("home fails")
    assert world.copies == {FAR: (3, Actual.RUNNING)}
    assert world.retry is not None

    for event in ("ten minutes pass", "home runs"):
        world.happen(event)
    assert list(world.copies) == [HOME]


def test_a_copy_that_the_leader_released_before_it_stopped_is_removed() -> None:
    world = World()
    world.happen("leader changes")
    kept = world.tombstones[FAR]
    world.tombstones[FAR] = structs.replace(kept, after_running=False)
    world.copies[HOME] = (2, Actual.RUNNING)

    world.happen("leader changes")

    assert list(world.copies) == [HOME]
    assert not world.tombstones
