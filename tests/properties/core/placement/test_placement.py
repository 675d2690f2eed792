"""Placement against a plain reference, over random clusters and random histories of reservations."""

from collections import Counter
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CONTAINER
from examples import times
from persys.core.placement.filters import reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot, utilisation
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, HostPort, Operator, Resources, Rules, Strategy

TRAITS = ("type:container", "type:vm", "driver:nfs")
PORTS = (HostPort(80), HostPort(80, "udp"), HostPort(443))

# Few values each, so that nodes are often equal and often just too small.
amounts = st.builds(
    Resources,
    st.sampled_from([0, 500, 1000, 2000]),
    st.sampled_from([0, 512, 1024]),
    st.sampled_from([0, 10]),
)
sizes = st.builds(
    Resources,
    st.sampled_from([1000, 2000, 4000]),
    st.sampled_from([1024, 4096]),
    st.sampled_from([0, 10, 20]),
)
trait_sets = st.frozensets(st.sampled_from(TRAITS))
port_sets = st.frozensets(st.sampled_from(PORTS), max_size=2)
labels = st.fixed_dictionaries(
    {}, optional={"zone": st.sampled_from("abc"), "rack": st.sampled_from(["1", "2"])}
)
taint_sets = st.sampled_from([frozenset(), frozenset(), frozenset({"gpu"}), frozenset({"gpu=old"})])
groups = st.sampled_from(["", "", "g", "h"])
constraints = st.sampled_from(
    [
        Constraint("zone", Operator.EQUALS, ("a",)),
        Constraint("zone", Operator.NOT_IN, ("a", "b")),
        Constraint("rack", Operator.ABOVE, ("1",)),
        Constraint("rack", Operator.EXISTS),
        Constraint("node.id", Operator.IN, ("n01", "n02", "n03")),
    ]
)
rule_sets = st.just(Rules()) | st.builds(
    Rules,
    constraints=st.lists(constraints, max_size=2).map(tuple),
    tolerations=st.sampled_from([(), ("gpu",), ("gpu=old",), ("*",)]),
    group=groups,
    apart=st.booleans(),
    spread_over=st.sampled_from([(), ("zone",), ("zone", "rack"), ("missing", "zone")]),
    strategy=st.sampled_from([None, Strategy.BINPACK, Strategy.SPREAD]),
)
wants = st.builds(Requirements, amounts, trait_sets, port_sets, rule_sets)


@dataclass(frozen=True)
class NodeCase:
    size: Resources
    traits: frozenset[str]
    closed: str
    labels: dict[str, str]
    taints: frozenset[str]
    held: list[tuple[Resources, frozenset[HostPort], str, bool]]


nodes = st.builds(
    NodeCase,
    sizes,
    trait_sets.map(lambda extra: extra | CONTAINER),
    st.sampled_from(["", "", "", "draining"]),
    labels,
    taint_sets,
    st.lists(st.tuples(amounts, port_sets, groups, st.booleans()), max_size=3),
)


@st.composite
def clusters(draw: st.DrawFn) -> NodeIndex:
    node_index = NodeIndex()
    # Equal ones in great number, so that the walk ends and the search begins.
    cases = [case for case in draw(st.lists(nodes, max_size=12)) for _ in range(draw(COPIES))][:60]
    for number, case in enumerate(draw(st.permutations(cases))):
        node_id = NodeId(f"n{number:02}")
        node_index.put_node(
            node_id,
            allocatable=case.size,
            traits=case.traits,
            closed=case.closed,
            labels={**case.labels, "node.id": node_id},
            taints=case.taints,
        )
        for index, (resources, ports, group, apart) in enumerate(case.held):
            name = WorkloadId(f"w{number}-{index}")
            node_index.hold(name, node_id, resources, ports, group=group, apart=apart)
    return node_index


COPIES = st.integers(1, 8)


def reference(needs: Requirements, node_index: NodeIndex) -> NodeId | None:
    """The reference: of all nodes that no filter rejects, the one with the lowest score."""
    fitting = [
        (plain_score(slot, needs, node_index), slot.node_id)
        for slot in node_index.slots.values()
        if reject(slot, needs) is None
    ]
    return min(fitting)[1] if fitting else None


def plain_score(slot: NodeSlot, needs: Requirements, node_index: NodeIndex) -> list[float]:
    rules, slots = needs.rules, node_index.slots.values()
    parts: list[float] = []
    if rules.group:
        for key in rules.spread_over:
            domain = [other for other in slots if other.labels.get(key) == slot.labels.get(key)]
            parts.append(sum(other.members.get(rules.group, 0) for other in domain))
        parts.append(slot.members.get(rules.group, 0))
    full = utilisation(slot)
    parts.append(1 - full if rules.strategy is Strategy.BINPACK else full)
    return [*parts, slot.count]


@settings(max_examples=times(3), deadline=None)
@given(wants, clusters())
def test_ordered_and_array_search_select_the_same_node_as_a_full_scan(
    needs: Requirements, node_index: NodeIndex
) -> None:
    match place(needs, node_index):
        case Placed(node_id=node_id):
            assert node_id == reference(needs, node_index)
        case Unplaceable(rejections=rejections):
            assert reference(needs, node_index) is None
            assert rejections.keys() == node_index.slots.keys()


@settings(max_examples=times(2), deadline=None)
@given(st.lists(wants, max_size=40), clusters())
def test_a_selected_node_always_has_capacity(
    many: list[Requirements], node_index: NodeIndex
) -> None:
    before = {node_id: slot.free for node_id, slot in node_index.slots.items()}
    for number, needs in enumerate(many):
        match place(needs, node_index):
            case Placed(node_id=node_id):
                assert node_id == reference(needs, node_index)
                node_index.hold(
                    WorkloadId(f"new-{number}"),
                    node_id,
                    needs.resources,
                    needs.host_ports,
                    group=needs.rules.group,
                    apart=needs.rules.apart,
                )
            case Unplaceable() as nowhere:
                assert nowhere.explain()

    for node_id, slot in node_index.slots.items():
        # Holds of the cluster may overcommit a node to begin with; placement never adds to that.
        assert slot.free == before[node_id] or Resources().fits_in(slot.free)
        assert all(count == 1 for port, count in slot.ports.items() if port not in PORTS)


@settings(max_examples=times(0.12), deadline=None)
@given(st.integers(0, 1 << 32).map(Random), st.lists(rule_sets, min_size=4, max_size=8))
def test_of_hundreds_of_nodes_too_the_best_is_chosen(random: Random, many: list[Rules]) -> None:
    """Enough nodes that ordered searches end early, in the whole order and in large and small domains."""
    node_index = NodeIndex()
    node_ids = [NodeId(f"n{number:03}") for number in range(300)]
    for node_id in node_ids:
        put_some_node(node_index, node_id, random)
    for number in range(150):
        match random.randrange(6):
            case 0:
                put_some_node(node_index, random.choice(node_ids), random)
            case 1:
                node_index.give_back_all(random.choice(node_ids))
            case 2:
                node_index.remove_node(random.choice(node_ids))
        rules = random.choice(many)
        needs = Requirements(Resources(random.choice((100, 700)), 128), CONTAINER, rules=rules)
        found = place(needs, node_index)
        assert (found.node_id if isinstance(found, Placed) else None) == reference(
            needs, node_index
        )
        if isinstance(found, Placed):
            name = WorkloadId(f"w{number}")
            node_index.hold(
                name,
                found.node_id,
                needs.resources,
                needs.host_ports,
                group=rules.group,
                apart=rules.apart,
            )


def put_some_node(node_index: NodeIndex, node_id: NodeId, random: Random) -> None:
    node_index.put_node(
        node_id,
        allocatable=Resources(random.choice((1000, 4000)), 8192, 10),
        traits=CONTAINER,
        closed=random.choice(("", "", "", "cordoned")),
        labels={
            "zone": random.choice("aaaab"),
            "rack": str(random.randrange(12)),
            "node.id": node_id,
        },
        taints=frozenset(random.choice(((), (), ("gpu",)))),
    )


@dataclass(frozen=True)
class Step:
    verb: str
    workload: WorkloadId
    node: NodeId
    amount: Resources
    ports: frozenset[HostPort]
    group: str
    labels: dict[str, str]


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["hold", "give back", "put", "remove", "give back all", "close"]),
        st.sampled_from([WorkloadId(name) for name in "abc"]),
        st.sampled_from([NodeId("n1"), NodeId("n2")]),
        amounts,
        port_sets,
        groups,
        labels,
    ),
    max_size=40,
)


@settings(max_examples=times(3), deadline=None)
@given(steps)
def test_free_capacity_is_always_allocatable_minus_reserved(
    history: list[Step],
) -> None:
    node_index = NodeIndex()
    held: dict[tuple[NodeId, WorkloadId], Step] = {}
    for step in history:
        match step.verb:
            case "hold":
                node_index.hold(step.workload, step.node, step.amount, step.ports, group=step.group)
                held[(step.node, step.workload)] = step
            case "give back":
                node_index.give_back(step.workload, step.node)
                held.pop((step.node, step.workload), None)
            case "give back all":
                node_index.give_back_all(step.node)
                held = {key: value for key, value in held.items() if key[0] != step.node}
            case "put":
                node_index.put_node(
                    step.node, allocatable=step.amount, traits=CONTAINER, labels=step.labels
                )
            case "remove":
                node_index.remove_node(step.node)
            case "close":
                if step.node in node_index.slots:
                    node_index.close(step.node, "draining")

        for room in (node_index, node_index.copy()):
            check_counts(room, held)


def check_counts(node_index: NodeIndex, held: dict[tuple[NodeId, WorkloadId], Step]) -> None:
    for node_id, slot in node_index.slots.items():
        own = [value for (holder, _), value in held.items() if holder == node_id]
        assert slot.free == slot.allocatable - sum((one.amount for one in own), start=Resources())
        assert slot.count == len(own)
        assert set(slot.ports) == {port for one in own for port in one.ports}
        assert slot.members == Counter(one.group for one in own if one.group)
    for value in "abc", None:
        of_domain = [slot for slot in node_index.slots.values() if slot.labels.get("zone") == value]
        for group in "gh":
            members = sum(slot.members.get(group, 0) for slot in of_domain)
            assert node_index.members_in(group, "zone", value) == members
    ranks = [slot.rank for slot in node_index.in_order()]
    assert ranks == sorted(slot.rank for slot in node_index.slots.values() if not slot.closed)
