"""No node is overcommitted in the store, whichever part of a batch of commits is applied."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from builders import NOON, a_workload
from examples import times
from persys.core.nodes import Phase
from persys.core.placement.placer import placer_over
from persys.core.reconcile.decide import decide
from persys.core.reconcile.situation import Policy, Situation
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Assignment, HostPort, Resources, Rules, Tombstone
from persys.model.spec import ContainerSpec, Port, WorkloadType
from persys.model.workload import Desired
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.reconcile.decision_to_transaction import to_transaction
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.sync import load
from persys.store.port import Record, Snapshot
from persys.wire.stored import records

NODES = ("n1", "n2")
CPU = 1000
NAMES = ("a", "b", "c", "d")
POLICY = Policy()


@dataclass(frozen=True)
class Step:
    """One user request, and whether the store applies its commit."""

    name: str
    cpu: int
    host_port: int
    group: str
    desired: Desired
    stored: bool


@dataclass
class World:
    """The memory of a leader over a store that applies any part of a batch."""

    cluster: ClusterState = field(default_factory=ClusterState)
    stored: dict[str, Struct] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in NODES:
            types = frozenset({WorkloadType.CONTAINER})
            node = Node(NodeId(name), Capabilities(CPU, 8192, types=types), f"{name}:1", NOON)
            self.stored[f"/nodes/{name}"] = node
            self.cluster.put_node(node, lease_until=0.0)

    def decide(self, step: Step) -> Transaction:
        workload = a_workload(
            step.name,
            spec=ContainerSpec("web", ports=(Port(80, step.host_port),))
            if step.host_port
            else ContainerSpec("web"),
            resources=Resources(step.cpu, 0),
            desired=step.desired,
            rules=Rules(group=step.group, apart=True) if step.group else Rules(),
        )
        entry = self.cluster.workloads.get(workload.id)
        situation = Situation(
            workload,
            entry.assignment if entry else None,
            entry.workload_status if entry else None,
            phase=Phase.ALIVE,
        )
        placer = placer_over(self.cluster.node_index)
        decision = decide(situation, placer, POLICY, now=NOON, roll=0.5)
        change, _ = to_transaction(
            entry, workload, decision, self.cluster, user_event=None, now=NOON
        )
        if decision.assignment is not None:
            self.cluster.reserve_pending(decision.assignment)
        return change

    def write(self, change: Transaction) -> None:
        self.stored.update(change.puts)
        for key in change.drops:
            self.stored.pop(key, None)

    def reload(self) -> None:
        found = (Record(key, records.encode(value), 1) for key, value in self.stored.items())
        load(self.cluster, Snapshot(1, tuple(found)), lease_until=0.0, now=NOON)

    def copies_are_removed(self) -> None:
        for key, record in list(self.stored.items()):
            if isinstance(record, Tombstone):
                old = record.assignment
                del self.stored[key]
                self.cluster.drop_tombstone(old.node_id, old.workload_id)
                self.cluster.update_reservations(old.workload_id, (old.node_id,))

    def held(self, node_id: str) -> Iterator[Assignment]:
        for record in self.stored.values():
            bound = record.assignment if isinstance(record, Tombstone) else record
            if isinstance(bound, Assignment) and bound.node_id == node_id:
                yield bound


steps = st.builds(
    Step,
    name=st.sampled_from(NAMES),
    cpu=st.sampled_from([100, 400, 500, 900]),
    host_port=st.sampled_from([0, 0, 8080]),
    group=st.sampled_from(["", "", "g"]),
    desired=st.sampled_from([Desired.RUNNING] * 3 + [Desired.DELETED]),
    stored=st.booleans(),
)
batches = st.lists(
    st.lists(steps, min_size=1, max_size=4, unique_by=lambda step: step.name), max_size=6
)


@settings(max_examples=times(1.5), deadline=None)
@given(batches=batches, lost=st.booleans(), removes=st.booleans())
def test_no_part_of_a_batch_overcommits_a_node(
    batches: list[list[Step]], lost: bool, removes: bool
) -> None:
    """`lost`: the response of the store is lost, so everything is read again."""
    world = World()
    for batch in batches:
        changes = [(step, world.decide(step)) for step in batch]
        for step, change in changes:
            if step.stored:
                world.write(change)
                if not lost:
                    change.done()
            world.cluster.end_pending(WorkloadId(step.name))
            for node_id in NODES:
                world.cluster.update_reservations(WorkloadId(step.name), (NodeId(node_id),))
        if lost:
            world.reload()
        if removes:
            world.copies_are_removed()

        for node_id in NODES:
            held = list(world.held(node_id))
            ports: list[HostPort] = [port for bound in held for port in bound.host_ports]
            groups = [bound.rules.group for bound in held if bound.rules.group]
            assert sum(bound.reserved.cpu_millicores for bound in held) <= CPU, held
            assert len(ports) == len(set(ports)), held
            assert len(groups) == len(set(groups)), held
            free = world.cluster.node_index.slots[NodeId(node_id)].free
            used = CPU - sum(bound.reserved.cpu_millicores for bound in held)
            assert free.cpu_millicores == used, held


def test_capacity_of_a_shrinking_workload_is_free_only_after_the_commit() -> None:
    world = World()
    for name in NODES[1:]:
        closed = replace(world.cluster.nodes[NodeId(name)].node, cordoned=True)
        world.cluster.put_node(closed)
    large = Step("a", 900, 0, "", Desired.RUNNING, stored=True)
    first = world.decide(large)
    world.write(first)
    first.done()
    world.cluster.end_pending(WorkloadId("a"))

    world.decide(Step("a", 100, 0, "", Desired.RUNNING, stored=False))
    taker = world.decide(Step("b", 900, 0, "", Desired.RUNNING, stored=True))

    assert "/assignments/b" not in taker.puts
