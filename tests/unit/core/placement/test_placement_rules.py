"""Placement rules: required and preferred nodes."""

import pytest

from builders import CONTAINER, N1, N2
from persys.core.placement.filters import Filter, reject, reject_resident
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import GroupProximity, score_parts
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, Operator, Resources, Rules, Strategy

SMALL = Resources(100, 128)
IN_EU = Constraint("zone", Operator.EQUALS, ("eu",))


@pytest.fixture
def node_index() -> NodeIndex:
    return NodeIndex()


def add(node_index: NodeIndex, node_id: str, *taints: str, closed: str = "", **labels: str) -> None:
    node_index.put_node(
        NodeId(node_id),
        allocatable=Resources(4000, 8192, 100),
        traits=CONTAINER,
        closed=closed,
        labels={**labels, "node.id": node_id},
        taints=frozenset(taints),
    )


def hold(node_index: NodeIndex, name: str, node_id: str, rules: Rules, cpu: int = 100) -> None:
    node_index.hold(
        WorkloadId(name),
        NodeId(node_id),
        Resources(cpu, 128),
        frozenset(),
        group=rules.group,
        apart=rules.apart,
    )


def needing(**rules: object) -> Requirements:
    return Requirements(SMALL, CONTAINER, rules=Rules(**rules))  # type: ignore[arg-type]  # by name


def chosen(node_index: NodeIndex, **rules: object) -> str:
    found = place(needing(**rules), node_index)
    assert isinstance(found, Placed)
    return found.node_id


def refusal(node_index: NodeIndex, **rules: object) -> str:
    found = place(needing(**rules), node_index)
    assert isinstance(found, Unplaceable)
    return found.explain()


@pytest.mark.parametrize(
    ("taint", "tolerations", "fits"),
    [
        ("gpu", (), False),
        ("gpu", ("gpu",), True),
        ("gpu=old", ("gpu",), True),
        ("gpu=old", ("gpu=old",), True),
        ("gpu=old", ("gpu=new",), False),
        ("gpu", ("gpu=old",), False),
        ("gpu=old", ("*",), True),
    ],
)
def test_a_taint_excludes_workloads_without_a_toleration(
    taint: str, tolerations: tuple[str, ...], fits: bool, node_index: NodeIndex
) -> None:
    add(node_index, "n1", taint)

    rejection = reject(node_index.slots[N1], needing(tolerations=tolerations))

    assert (rejection is None) is fits
    if rejection is not None:
        assert (rejection.filter, rejection.detail) == (Filter.TAINT, f"with taint {taint}")


def test_every_taint_must_be_tolerated(node_index: NodeIndex) -> None:
    add(node_index, "n1", "gpu", "team=ml")

    assert refusal(node_index, tolerations=("gpu",)) == "1 node with taint team=ml"


def test_a_taint_or_cordon_does_not_evict_running_workloads(node_index: NodeIndex) -> None:
    add(node_index, "n1", "gpu", closed="cordoned")

    assert reject_resident(node_index.slots[N1], needing()) is None


def test_a_constraint_is_named_when_it_is_not_met(node_index: NodeIndex) -> None:
    add(node_index, "n1", zone="us")
    add(node_index, "n2")

    assert refusal(node_index, constraints=(IN_EU,)) == "2 nodes not meeting 'zone = eu'"


def test_a_constraint_may_name_the_node(node_index: NodeIndex) -> None:
    for number in range(40):
        add(node_index, f"n{number:02}")
    only = Constraint("node.id", Operator.EQUALS, ("n33",))

    assert chosen(node_index, constraints=(only,)) == "n33"


def test_no_two_of_a_group_that_must_be_apart_share_a_node(node_index: NodeIndex) -> None:
    add(node_index, "n1")
    apart = Rules(group="db", apart=True)
    hold(node_index, "a", "n1", apart)

    assert refusal(node_index, group="db", apart=True) == "1 node with another of group db"
    assert chosen(node_index, group="web", apart=True) == "n1"


def test_required_anti_affinity_also_excludes_members_with_preferred(node_index: NodeIndex) -> None:
    add(node_index, "n1")
    hold(node_index, "a", "n1", Rules(group="db", apart=True))

    assert "another of group db" in refusal(node_index, group="db")


def test_a_group_keeps_apart_where_it_can_and_shares_where_it_must(node_index: NodeIndex) -> None:
    add(node_index, "n1")
    add(node_index, "n2")
    hold(node_index, "big", "n2", Rules(), cpu=3000)
    hold(node_index, "a", "n1", Rules(group="web"))

    assert chosen(node_index, group="web") == "n2"
    hold(node_index, "b", "n2", Rules(group="web"))
    assert chosen(node_index, group="web") == "n1"


def test_a_group_is_spread_over_the_first_label_before_the_second(node_index: NodeIndex) -> None:
    add(node_index, "n1", zone="a", rack="1")
    add(node_index, "n2", zone="a", rack="2")
    add(node_index, "n3", zone="b", rack="1")
    hold(node_index, "other", "n3", Rules(), cpu=3000)
    hold(node_index, "a", "n1", Rules(group="web"))

    assert chosen(node_index, group="web", spread_over=("zone", "rack")) == "n3"
    assert chosen(node_index, group="web", spread_over=("rack", "zone")) == "n2"


def test_nodes_without_the_label_are_a_domain_of_their_own(node_index: NodeIndex) -> None:
    add(node_index, "n1", zone="a")
    add(node_index, "n2")
    add(node_index, "n3")
    hold(node_index, "a", "n1", Rules(group="web"))
    assert chosen(node_index, group="web", spread_over=("zone",)) == "n2"

    hold(node_index, "b", "n2", Rules(group="web"))
    hold(node_index, "c", "n3", Rules(group="web"))
    assert chosen(node_index, group="web", spread_over=("zone",)) == "n1"


def test_a_member_counts_where_its_node_is_now_labelled(node_index: NodeIndex) -> None:
    add(node_index, "n1", zone="a")
    add(node_index, "n2", zone="b")
    hold(node_index, "a", "n1", Rules(group="web"))
    assert chosen(node_index, group="web", spread_over=("zone",)) == "n2"

    add(node_index, "n1", zone="b")
    assert node_index.members_in("web", "zone", "b") == 1
    assert node_index.members_in("web", "zone", "a") == 0


def test_packing_takes_the_fullest_that_fits(node_index: NodeIndex) -> None:
    for node_id, cpu in (("n1", 1000), ("n2", 2000), ("n3", 3950)):
        add(node_index, node_id)
        hold(node_index, f"on-{node_id}", node_id, Rules(), cpu=cpu)

    assert chosen(node_index, strategy=Strategy.BINPACK) == "n2"
    assert chosen(node_index) == "n1"


def test_a_workload_may_differ_from_the_strategy_of_its_cluster() -> None:
    node_index = NodeIndex(Strategy.BINPACK)
    add(node_index, "n1")
    add(node_index, "n2")
    hold(node_index, "a", "n1", Rules())

    assert chosen(node_index) == "n1"
    assert chosen(node_index, strategy=Strategy.SPREAD) == "n2"


def test_the_score_is_explained_part_by_part(node_index: NodeIndex) -> None:
    add(node_index, "n1", zone="a")
    add(node_index, "n2", zone="a")
    hold(node_index, "a", "n1", Rules(group="web"))
    needs = needing(group="web", spread_over=("zone",))

    reported = score_parts(
        node_index.slots[N2], needs, node_index, GroupProximity(needs, node_index)
    )
    parts = [(part.name, part.value) for part in reported]

    assert parts == [
        ("group in zone", 1),
        ("group on node", 0),
        ("utilisation", 0),
        ("workloads", 0),
    ]


def test_placement_in_a_copied_index_does_not_change_the_original(node_index: NodeIndex) -> None:
    add(node_index, "n1", zone="a")
    clone = node_index.copy()
    hold(clone, "a", "n1", Rules(group="web", apart=True))

    assert node_index.slots[N1].members == {}
    assert chosen(node_index, group="web", apart=True) == "n1"
