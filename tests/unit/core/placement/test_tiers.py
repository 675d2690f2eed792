"""Nodes of higher tiers: who may use them, and which of them is chosen."""

from dataclasses import replace

import pytest

from builders import add_node, needs
from persys.core.placement.capacity import capacity_of
from persys.core.placement.explain import explain
from persys.core.placement.filters import Filter
from persys.core.placement.index.node_index import SCANNED_MOST, NodeIndex
from persys.core.placement.placer import placer_over
from persys.core.placement.requirements import HOME_ONLY, Requirements, TierAccess
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources

MAY = TierAccess(offload=True)
PREFERS = TierAccess(offload=True, preferred=True)
FEW, MANY = 2, SCANNED_MOST + 4


def wants(tiers: TierAccess, cpu: int = 1000) -> Requirements:
    return replace(needs(cpu), tiers=tiers)


def chosen(node_index: NodeIndex, tiers: TierAccess, cpu: int = 1000) -> str | None:
    match place(wants(tiers, cpu), node_index):
        case Placed(node_id=node_id):
            return node_id
        case Unplaceable():
            return None


@pytest.fixture(params=[FEW, MANY], ids=["few", "many"])
def node_index(request: pytest.FixtureRequest) -> NodeIndex:
    """Nodes of this cluster, and three federated ones: the cheap one is in the higher tier."""
    node_index = NodeIndex()
    for number in range(request.param):
        add_node(node_index, f"n{number:02}")
    add_node(node_index, "dear", cpu=64000, tier=1, price=0.5)
    add_node(node_index, "fair", cpu=8000, tier=1, price=0.1)
    add_node(node_index, "cheap", cpu=64000, tier=2, price=0.01)
    return node_index


def fill_home(node_index: NodeIndex) -> None:
    for node_id in list(node_index.slots):
        if node_id not in node_index.beyond:
            node_index.hold(WorkloadId(f"w-{node_id}"), node_id, Resources(4000), frozenset())


def test_without_consent_a_workload_stays_in_tier_0(node_index: NodeIndex) -> None:
    fill_home(node_index)

    nowhere = place(wants(HOME_ONLY), node_index)

    assert isinstance(nowhere, Unplaceable)
    assert "2 nodes in tier 1 (offload is never)" in nowhere.explain()


def test_tier_0_is_used_first(node_index: NodeIndex) -> None:
    assert chosen(node_index, MAY) == "n00"


def test_a_workload_that_prefers_offloading_uses_tier_0_last(node_index: NodeIndex) -> None:
    assert chosen(node_index, PREFERS) == "fair"
    for node_id in list(node_index.beyond):
        node_index.close(node_id, "cordoned")
    assert chosen(node_index, PREFERS) == "n00"


def test_the_lowest_tier_is_used_first_and_in_it_the_cheapest_node(node_index: NodeIndex) -> None:
    fill_home(node_index)

    assert chosen(node_index, MAY) == "fair"
    assert chosen(node_index, MAY, cpu=9000) == "dear"
    node_index.close(NodeId("dear"), "cordoned")
    assert chosen(node_index, MAY, cpu=9000) == "cheap"


def test_a_constraint_on_the_node_id_is_no_consent(node_index: NodeIndex) -> None:
    from persys.core.placement.constraints import parse
    from persys.model.placement import Rules

    pinned = replace(wants(HOME_ONLY), rules=Rules(constraints=(parse("node.id = fair", "c"),)))
    assert isinstance(place(pinned, node_index), Unplaceable)


def test_a_node_that_changes_its_tier_is_used_accordingly() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1")
    assert chosen(node_index, HOME_ONLY) == "n1"

    add_node(node_index, "n1", tier=1)
    assert chosen(node_index, HOME_ONLY) is None

    add_node(node_index, "n1")
    assert chosen(node_index, HOME_ONLY) == "n1"
    node_index.remove_node(NodeId("n1"))
    assert not node_index.beyond


def test_a_copy_of_the_index_has_the_same_tiers(node_index: NodeIndex) -> None:
    fill_home(node_index)
    twin = node_index.copy()

    assert chosen(twin, MAY) == "fair"
    twin.hold(WorkloadId("a"), NodeId("fair"), Resources(8000), frozenset())
    assert chosen(twin, MAY) == "dear"
    assert chosen(node_index, MAY) == "fair"


def test_explain_shows_tiers_and_prices_in_the_order_of_placement(node_index: NodeIndex) -> None:
    fill_home(node_index)

    found = explain(wants(MAY), node_index, limit=3)

    assert [verdict.node_id for verdict in found.verdicts] == ["fair", "dear", "cheap"]
    parts = {part.name: part.detail for part in found.verdicts[0].score}
    assert parts["tier"] == "tier 1"
    assert parts["price"] == "0.1 per core and hour"
    assert found.fit_count == 3


def test_explain_names_the_missing_consent(node_index: NodeIndex) -> None:
    fill_home(node_index)

    found = explain(wants(HOME_ONLY), node_index, limit=len(node_index.slots))

    assert found.fit_count == 0
    assert found.counts[Filter.TIER, "in tier 1 (offload is never)"] == 2
    assert "set offload: when-full" in found.changes()


@pytest.mark.parametrize("tier", [0, 1])
@pytest.mark.parametrize("count", [FEW, MANY], ids=["few", "many"])
def test_a_workload_must_fit_on_one_machine_behind_the_node(tier: int, count: int) -> None:
    node_index = NodeIndex()
    for number in range(count):
        add_node(node_index, f"n{number:02}", cpu=100)
    add_node(node_index, "far", cpu=64000, tier=tier, largest=Resources(8000))

    assert chosen(node_index, MAY, cpu=8000) == "far"
    nowhere = place(wants(MAY, cpu=9000), node_index)
    assert isinstance(nowhere, Unplaceable)
    assert nowhere.rejections[NodeId("far")].filter is Filter.SIZE
    assert "1 node whose largest machine has 8000m cpu free (needs 9000m cpu)" in nowhere.explain()


def test_explain_and_capacity_name_the_largest_machine() -> None:
    node_index = NodeIndex()
    add_node(node_index, "n1", cpu=100)
    add_node(node_index, "far", cpu=64000, tier=1, largest=Resources(8000, 4096))

    found = explain(wants(MAY, cpu=9000), node_index, limit=2)
    capacity = capacity_of(node_index.slots[NodeId("far")], wants(MAY, cpu=9000))

    assert found.fit_count == 0
    assert "a node with 9000m cpu on one machine" in found.changes()
    assert (capacity.fits, capacity.limited_by.split(" (")[0]) == (
        0,
        "whose largest machine has 8000m cpu free",
    )


def test_a_workload_on_a_machine_behind_the_node_keeps_its_place() -> None:
    """The largest free machine is smaller because the workload itself runs on it."""
    node_index = NodeIndex()
    add_node(node_index, "far", cpu=8000, tier=1, largest=Resources(2000))
    node_index.hold(WorkloadId("web"), NodeId("far"), Resources(6000), frozenset())

    fits_on = placer_over(node_index).fits_on
    assert fits_on(WorkloadId("web"), NodeId("far"), wants(MAY, cpu=6000)) is None
    assert fits_on(WorkloadId("other"), NodeId("far"), wants(MAY, cpu=6000)) is not None
