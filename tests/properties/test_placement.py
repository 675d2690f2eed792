"""Placement against a plain reference, over random clusters and random histories of reservations."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CONTAINER
from persys.core.placement.columns import Columns
from persys.core.placement.filters import reject
from persys.core.placement.needs import Needs
from persys.core.placement.row import fullness
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.assignment import HostPort
from persys.model.ids import NodeId, WorkloadId
from persys.model.resources import Resources

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
wants = st.builds(Needs, amounts, trait_sets, port_sets)


@dataclass(frozen=True)
class NodeCase:
    size: Resources
    traits: frozenset[str]
    closed: str
    held: list[tuple[Resources, frozenset[HostPort]]]


nodes = st.builds(
    NodeCase,
    sizes,
    trait_sets.map(lambda extra: extra | CONTAINER),
    st.sampled_from(["", "", "", "draining"]),
    st.lists(st.tuples(amounts, port_sets), max_size=3),
)


@st.composite
def clusters(draw: st.DrawFn) -> Columns:
    columns = Columns()
    # Equal ones in great number, so that the walk ends and the search begins.
    cases = [case for case in draw(st.lists(nodes, max_size=12)) for _ in range(draw(COPIES))][:60]
    for number, case in enumerate(draw(st.permutations(cases))):
        node_id = NodeId(f"n{number:02}")
        columns.put_node(node_id, allocatable=case.size, traits=case.traits, closed=case.closed)
        for index, (resources, ports) in enumerate(case.held):
            columns.hold(WorkloadId(f"w{number}-{index}"), node_id, resources, ports)
    return columns


COPIES = st.integers(1, 8)


def reference(needs: Needs, columns: Columns) -> NodeId | None:
    """The rule, said plainly: of all that fit, the emptiest, then the fewest workloads, then the id."""
    fitting = [
        (fullness(row), row.count, row.node_id)
        for row in columns.rows.values()
        if not row.closed
        and needs.traits <= row.traits
        and not needs.host_ports & row.ports.keys()
        and needs.resources.fits_in(row.free)
    ]
    return min(fitting)[2] if fitting else None


@settings(max_examples=300, deadline=None)
@given(wants, clusters())
def test_the_walk_and_the_search_choose_what_a_look_at_all_nodes_would(
    needs: Needs, columns: Columns
) -> None:
    match place(needs, columns):
        case Placed(node_id=node_id):
            assert node_id == reference(needs, columns)
        case Unplaceable(rejections=rejections):
            assert reference(needs, columns) is None
            assert rejections.keys() == columns.rows.keys()


@settings(max_examples=200, deadline=None)
@given(st.lists(wants, max_size=40), clusters())
def test_a_chosen_node_always_has_room(many: list[Needs], columns: Columns) -> None:
    before = {node_id: row.free for node_id, row in columns.rows.items()}
    for number, needs in enumerate(many):
        match place(needs, columns):
            case Placed(node_id=node_id):
                assert reject(columns.rows[node_id], needs) is None
                columns.hold(
                    WorkloadId(f"new-{number}"), node_id, needs.resources, needs.host_ports
                )
            case Unplaceable() as nowhere:
                assert nowhere.explain()

    for node_id, row in columns.rows.items():
        # Holds of the cluster may overcommit a node to begin with; placement never adds to that.
        assert row.free == before[node_id] or Resources().fits_in(row.free)
        assert all(count == 1 for port, count in row.ports.items() if port not in PORTS)


@dataclass(frozen=True)
class Step:
    verb: str
    workload: WorkloadId
    node: NodeId
    amount: Resources
    ports: frozenset[HostPort]


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["hold", "give back", "put", "remove", "give back all", "close"]),
        st.sampled_from([WorkloadId(name) for name in "abc"]),
        st.sampled_from([NodeId("n1"), NodeId("n2")]),
        amounts,
        port_sets,
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_whatever_happens_free_is_what_is_allocatable_less_what_is_held(
    history: list[Step],
) -> None:
    columns = Columns()
    held: dict[tuple[NodeId, WorkloadId], tuple[Resources, frozenset[HostPort]]] = {}
    for step in history:
        match step.verb:
            case "hold":
                columns.hold(step.workload, step.node, step.amount, step.ports)
                held[(step.node, step.workload)] = (step.amount, step.ports)
            case "give back":
                columns.give_back(step.workload, step.node)
                held.pop((step.node, step.workload), None)
            case "give back all":
                columns.give_back_all(step.node)
                held = {key: value for key, value in held.items() if key[0] != step.node}
            case "put":
                columns.put_node(step.node, allocatable=step.amount, traits=CONTAINER)
            case "remove":
                columns.remove_node(step.node)
            case "close":
                if step.node in columns.rows:
                    columns.close(step.node, "draining")

        for node_id, row in columns.rows.items():
            mine = [value for (holder, _), value in held.items() if holder == node_id]
            taken = sum((amount for amount, _ in mine), start=Resources())
            assert row.free == row.allocatable - taken
            assert row.count == len(mine)
            assert set(row.ports) == {port for _, ports in mine for port in ports}
        ranks = [row.rank for row in columns.in_order()]
        assert ranks == sorted(ranks)
        assert len(ranks) == len(columns.rows)
