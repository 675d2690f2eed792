"""For every history: what fits is placed, and no node is overcommitted.

A model of the scheduler in memory places new workloads, wakes waiting ones, and accepts new ones in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import event, given, settings
from hypothesis import strategies as st

from builders import CONTAINER
from examples import times
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.pending_queue import PendingEntry, PendingQueue
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, choose, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, HostPort, Operator, Resources, Rules

NODES = [NodeId(f"n{number}") for number in range(4)]

wants = st.builds(
    Requirements,
    st.builds(Resources, st.sampled_from([100, 400, 800]), st.sampled_from([0, 512])),
    st.just(CONTAINER),
    st.sampled_from([frozenset(), frozenset(), frozenset({HostPort(80)})]),
    st.builds(
        Rules,
        constraints=st.sampled_from([(), (), (Constraint("zone", Operator.EQUALS, ("a",)),)]),
        tolerations=st.sampled_from([(), ("gpu",)]),
        group=st.sampled_from(["", "g"]),
        apart=st.booleans(),
        priority=st.sampled_from([10, 50, 100]),
    ),
)


@dataclass
class QueueModel:
    node_index: NodeIndex = field(default_factory=NodeIndex)
    waiting: PendingQueue = field(default_factory=PendingQueue)
    wanted: dict[WorkloadId, Requirements] = field(default_factory=dict)
    placed: dict[WorkloadId, NodeId] = field(default_factory=dict)
    woken: dict[WorkloadId, None] = field(default_factory=dict)
    steps: int = 0

    def submit(self, needs: Requirements) -> None:
        name = WorkloadId(f"w{len(self.wanted)}")
        self.wanted[name] = needs
        self.settle(name)

    def settle(self, name: WorkloadId) -> None:
        self.steps += 1
        needs = self.wanted[name]
        match place(needs, self.node_index):
            case Placed(node_id=node_id):
                self.node_index.hold(
                    name,
                    node_id,
                    needs.resources,
                    needs.host_ports,
                    group=needs.rules.group,
                    apart=needs.rules.apart,
                )
                self.placed[name] = node_id
                assert Resources().fits_in(self.node_index.slots[node_id].free)
                self.waiting.discard(name)
            case _:
                self.waiting.add(name, PendingEntry(needs))
        self.candidates_for(self.waiting.after_decision(name, self.node_index.slots))

    def leave(self, name: WorkloadId) -> None:
        self.waiting.discard(name)
        self.woken.pop(name, None)
        if (node_id := self.placed.pop(name, None)) is not None:
            self.node_index.give_back(name, node_id)
            self.candidates_for([node_id])
        self.candidates_for(self.waiting.after_decision(name, self.node_index.slots))

    def change(self, change: "NodeChange") -> None:
        self.node_index.put_node(
            change.node_id,
            allocatable=Resources(change.cpu, 2048, 10),
            traits=CONTAINER,
            closed=change.closed,
            labels={"zone": change.zone},
            taints=frozenset(change.taints),
        )
        self.candidates_for([change.node_id])

    def candidates_for(self, node_ids: Iterable[NodeId]) -> None:
        for node_id in node_ids:
            named = self.waiting.candidates_for(self.node_index.slots[node_id])
            self.woken.update(dict.fromkeys(named))

    def wake_one(self) -> None:
        if self.woken:
            name = next(iter(self.woken))
            del self.woken[name]
            if name not in self.placed:
                self.settle(name)

    def rest(self) -> None:
        while self.woken:
            self.wake_one()
            assert self.steps < 10_000, "it goes round and round"


@dataclass(frozen=True)
class NodeChange:
    node_id: NodeId
    cpu: int
    zone: str
    taints: tuple[str, ...] = ()
    closed: str = ""


deeds = st.lists(
    st.one_of(
        wants,
        wants,
        st.integers(0, 60),  # who of those that came leaves
        st.just("wake one"),
        st.builds(
            NodeChange,
            st.sampled_from(NODES),
            st.sampled_from([500, 1000, 2000]),
            st.sampled_from("ab"),
            st.sampled_from([(), (), ("gpu",)]),
            st.sampled_from(["", "", "", "cordoned"]),
        ),
    ),
    min_size=20,
    max_size=80,
)


@settings(max_examples=times(3), deadline=None)
@given(deeds)
def test_promise_2_and_promise_3_hold_for_every_history(history: list[object]) -> None:
    model = QueueModel()
    for action in history:
        match action:
            case Requirements():
                model.submit(action)
            case int():
                if (name := WorkloadId(f"w{action}")) in model.placed or name in model.waiting:
                    model.leave(name)
            case "wake one":
                model.wake_one()
            case NodeChange():
                model.change(action)
        check_room(model)

    model.rest()

    event(f"waiting: {min(len(model.waiting), 3)}")
    for name in model.waiting:
        assert choose(model.wanted[name], model.node_index) is None, f"{name} could be placed"


def check_room(model: QueueModel) -> None:
    """No node is overcommitted, except one whose capacity was reduced."""
    for slot in model.node_index.slots.values():
        own = [
            model.wanted[name] for name, node_id in model.placed.items() if node_id == slot.node_id
        ]
        assert slot.free == slot.allocatable - sum(
            (needs.resources for needs in own), start=Resources()
        )
        assert sum(HostPort(80) in needs.host_ports for needs in own) <= 1
        of_group = [needs.rules for needs in own if needs.rules.group]
        assert len(of_group) <= 1 or not any(rules.apart for rules in of_group)


def test_promise_2_thousands_of_unplaceable_workloads_cost_nothing_when_little_capacity_appears() -> (
    None
):
    model = QueueModel()
    model.change(NodeChange(NODES[0], 1000, "a"))
    for number in range(10_000):
        model.waiting.add(
            WorkloadId(f"large-{number}"),
            PendingEntry(Requirements(Resources(2000 + number % 5000), CONTAINER)),
        )
    model.waiting.add(WorkloadId("small"), PendingEntry(Requirements(Resources(100), CONTAINER)))

    assert model.waiting.candidates_for(model.node_index.slots[NODES[0]]) == ["small"]
