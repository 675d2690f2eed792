"""Placement rules: required and preferred nodes."""

import pytest

from builders import CONTAINER, N1, N2
from persys.core.placement.filters import Filter, reject, reject_resident
from persys.core.placement.node_index import Columns
from persys.core.placement.requirements import Needs
from persys.core.placement.score import Company, score_parts
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, Operator, Rules, Strategy
from persys.model.resources import Resources

SMALL = Resources(100, 128)
IN_EU = Constraint("zone", Operator.EQUALS, ("eu",))


@pytest.fixture
def columns() -> Columns:
    return Columns()


def add(columns: Columns, node_id: str, *taints: str, closed: str = "", **labels: str) -> None:
    columns.put_node(
        NodeId(node_id),
        allocatable=Resources(4000, 8192, 100),
        traits=CONTAINER,
        closed=closed,
        labels={**labels, "node.id": node_id},
        taints=frozenset(taints),
    )


def hold(columns: Columns, name: str, node_id: str, rules: Rules, cpu: int = 100) -> None:
    columns.hold(
        WorkloadId(name),
        NodeId(node_id),
        Resources(cpu, 128),
        frozenset(),
        group=rules.group,
        apart=rules.apart,
    )


def needing(**rules: object) -> Needs:
    return Needs(SMALL, CONTAINER, rules=Rules(**rules))  # type: ignore[arg-type]  # by name


def chosen(columns: Columns, **rules: object) -> str:
    found = place(needing(**rules), columns)
    assert isinstance(found, Placed)
    return found.node_id


def refusal(columns: Columns, **rules: object) -> str:
    found = place(needing(**rules), columns)
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
def test_a_taint_keeps_away_what_does_not_tolerate_it(
    taint: str, tolerations: tuple[str, ...], fits: bool, columns: Columns
) -> None:
    add(columns, "n1", taint)

    rejection = reject(columns.rows[N1], needing(tolerations=tolerations))

    assert (rejection is None) is fits
    if rejection is not None:
        assert (rejection.filter, rejection.detail) == (Filter.TAINT, f"with taint {taint}")


def test_every_taint_must_be_tolerated(columns: Columns) -> None:
    add(columns, "n1", "gpu", "team=ml")

    assert refusal(columns, tolerations=("gpu",)) == "1 node with taint team=ml"


def test_neither_a_taint_nor_a_cordon_drives_out_what_is_there(columns: Columns) -> None:
    add(columns, "n1", "gpu", closed="cordoned")

    assert reject_resident(columns.rows[N1], needing()) is None


def test_a_constraint_is_named_when_it_is_not_met(columns: Columns) -> None:
    add(columns, "n1", zone="us")
    add(columns, "n2")

    assert refusal(columns, constraints=(IN_EU,)) == "2 nodes not meeting 'zone = eu'"


def test_a_constraint_may_name_the_node(columns: Columns) -> None:
    for number in range(40):
        add(columns, f"n{number:02}")
    only = Constraint("node.id", Operator.EQUALS, ("n33",))

    assert chosen(columns, constraints=(only,)) == "n33"


def test_no_two_of_a_group_that_must_be_apart_share_a_node(columns: Columns) -> None:
    add(columns, "n1")
    apart = Rules(group="db", apart=True)
    hold(columns, "a", "n1", apart)

    assert refusal(columns, group="db", apart=True) == "1 node with another of group db"
    assert chosen(columns, group="web", apart=True) == "n1"


def test_one_that_must_be_apart_is_not_joined_by_one_that_need_not(columns: Columns) -> None:
    add(columns, "n1")
    hold(columns, "a", "n1", Rules(group="db", apart=True))

    assert "another of group db" in refusal(columns, group="db")


def test_a_group_keeps_apart_where_it_can_and_shares_where_it_must(columns: Columns) -> None:
    add(columns, "n1")
    add(columns, "n2")
    hold(columns, "big", "n2", Rules(), cpu=3000)
    hold(columns, "a", "n1", Rules(group="web"))

    assert chosen(columns, group="web") == "n2"
    hold(columns, "b", "n2", Rules(group="web"))
    assert chosen(columns, group="web") == "n1"


def test_a_group_is_spread_over_the_first_label_before_the_second(columns: Columns) -> None:
    add(columns, "n1", zone="a", rack="1")
    add(columns, "n2", zone="a", rack="2")
    add(columns, "n3", zone="b", rack="1")
    hold(columns, "other", "n3", Rules(), cpu=3000)
    hold(columns, "a", "n1", Rules(group="web"))

    assert chosen(columns, group="web", spread_over=("zone", "rack")) == "n3"
    assert chosen(columns, group="web", spread_over=("rack", "zone")) == "n2"


def test_nodes_without_the_label_are_a_domain_of_their_own(columns: Columns) -> None:
    add(columns, "n1", zone="a")
    add(columns, "n2")
    add(columns, "n3")
    hold(columns, "a", "n1", Rules(group="web"))
    assert chosen(columns, group="web", spread_over=("zone",)) == "n2"

    hold(columns, "b", "n2", Rules(group="web"))
    hold(columns, "c", "n3", Rules(group="web"))
    assert chosen(columns, group="web", spread_over=("zone",)) == "n1"


def test_a_member_counts_where_its_node_is_now_labelled(columns: Columns) -> None:
    add(columns, "n1", zone="a")
    add(columns, "n2", zone="b")
    hold(columns, "a", "n1", Rules(group="web"))
    assert chosen(columns, group="web", spread_over=("zone",)) == "n2"

    add(columns, "n1", zone="b")
    assert columns.members_in("web", "zone", "b") == 1
    assert columns.members_in("web", "zone", "a") == 0


def test_packing_takes_the_fullest_that_fits(columns: Columns) -> None:
    for node_id, cpu in (("n1", 1000), ("n2", 2000), ("n3", 3950)):
        add(columns, node_id)
        hold(columns, f"on-{node_id}", node_id, Rules(), cpu=cpu)

    assert chosen(columns, strategy=Strategy.BINPACK) == "n2"
    assert chosen(columns) == "n1"


def test_a_workload_may_differ_from_the_strategy_of_its_cluster() -> None:
    columns = Columns(Strategy.BINPACK)
    add(columns, "n1")
    add(columns, "n2")
    hold(columns, "a", "n1", Rules())

    assert chosen(columns) == "n1"
    assert chosen(columns, strategy=Strategy.SPREAD) == "n2"


def test_the_score_is_told_part_by_part(columns: Columns) -> None:
    add(columns, "n1", zone="a")
    add(columns, "n2", zone="a")
    hold(columns, "a", "n1", Rules(group="web"))
    needs = needing(group="web", spread_over=("zone",))

    told = score_parts(columns.rows[N2], needs, columns, Company(needs, columns))
    parts = [(part.name, part.value) for part in told]

    assert parts == [
        ("group in zone", 1),
        ("group on node", 0),
        ("utilisation", 0),
        ("workloads", 0),
    ]


def test_what_is_tried_in_a_copy_leaves_the_real_room_alone(columns: Columns) -> None:
    add(columns, "n1", zone="a")
    twin = columns.copy()
    hold(twin, "a", "n1", Rules(group="web", apart=True))

    assert columns.rows[N1].members == {}
    assert chosen(columns, group="web", apart=True) == "n1"
