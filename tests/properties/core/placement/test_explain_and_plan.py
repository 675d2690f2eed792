"""Explanations, plans and capacity agree with placement."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from persys.core.intent.field_changes import changed_fields
from persys.core.placement.capacity import capacity_of, simulate_loss, total_of
from persys.core.placement.explain import explain, remedy
from persys.core.placement.filter_pass import FilterPass, best_at_home
from persys.core.placement.filters import reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import GroupProximity, score
from persys.core.placement.select import choose
from persys.model.ids import NodeId, WorkloadId
from properties.core.placement.test_placement import clusters, wants

MANY = 1_000

texts = st.text(min_size=1, max_size=5)
trees = st.dictionaries(
    texts,
    st.recursive(
        texts | st.booleans() | st.lists(texts, max_size=3),
        lambda inner: st.dictionaries(texts, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(trees)
def test_nothing_differs_from_itself(tree: dict[str, object]) -> None:
    assert changed_fields(tree, tree) == ()


@given(trees, trees)
def test_the_way_back_swaps_before_and_after(
    one: dict[str, object], two: dict[str, object]
) -> None:
    there, back = changed_fields(one, two), changed_fields(two, one)

    assert [(c.field, c.after, c.before) for c in back] == [
        (c.field, c.before, c.after) for c in there
    ]


@settings(deadline=None)
@given(clusters(), wants)
def test_an_explanation_agrees_with_the_filter_for_every_node(
    node_index: NodeIndex, needs: Requirements
) -> None:
    found = explain(needs, node_index, limit=MANY)

    rejections = {slot.node_id: reject(slot, needs) for slot in node_index.slots.values()}
    assert {verdict.node_id: verdict.rejection for verdict in found.verdicts} == rejections
    refused = [rejection for rejection in rejections.values() if rejection is not None]
    assert found.counts == Counter((refusal.filter, refusal.detail) for refusal in refused)
    best = choose(needs, node_index)
    assert found.fit_count == len(rejections) - len(refused)
    if best is not None:
        assert found.verdicts[0].node_id == best.node_id


@settings(deadline=None)
@given(clusters(), wants, st.integers(1, 8))
def test_arrays_give_the_same_result_as_nodes_that_are_checked_one_by_one(
    node_index: NodeIndex, needs: Requirements, limit: int
) -> None:
    if not node_index.slots:
        return
    all_at_once, proximity = FilterPass(needs, node_index), GroupProximity(needs, node_index)

    refused = {
        slot.node_id: rejection
        for slot in node_index.slots.values()
        if (rejection := reject(slot, needs)) is not None
    }
    assert +all_at_once.counts == Counter((one.filter, one.detail) for one in refused.values())
    fit = [
        slot for slot in node_index.slots.values() if slot.node_id not in refused and not slot.tier
    ]
    fit.sort(key=lambda slot: score(slot, needs, node_index, proximity))
    assert best_at_home(all_at_once, proximity, limit) == fit[:limit]
    nearest = [slot.node_id for slot in all_at_once.nearest(limit)]
    assert len(nearest) == min(limit, len(refused))
    assert set(nearest) <= refused.keys()


@settings(deadline=None)
@given(clusters(), wants, st.integers(1, 8))
def test_a_limited_explanation_starts_with_the_best_nodes(
    node_index: NodeIndex, needs: Requirements, limit: int
) -> None:
    few, all_of_them = (
        explain(needs, node_index, limit=limit),
        explain(needs, node_index, limit=MANY),
    )

    assert len(few.verdicts) == min(limit, len(node_index.slots))
    assert few.counts == all_of_them.counts
    fits = [verdict for verdict in few.verdicts if verdict.rejection is None]
    assert fits == list(all_of_them.verdicts[: len(fits)])


@settings(deadline=None)
@given(clusters(), wants)
def test_every_refusal_has_a_remedy_and_only_a_refusal_has_one(
    node_index: NodeIndex, needs: Requirements
) -> None:
    for slot in node_index.slots.values():
        refused = reject(slot, needs) is not None
        found = remedy(slot, needs, node_index)
        assert (bool(found.change), found.cost > 0) == (refused, refused)


@settings(deadline=None)
@given(clusters(), wants)
def test_as_many_fit_as_can_be_placed_one_after_the_other(
    node_index: NodeIndex, needs: Requirements
) -> None:
    fits = total_of([capacity_of(slot, needs) for slot in node_index.slots.values()])

    assert placed_until_full(needs, node_index) == (MANY if fits is None else fits)


@settings(deadline=None)
@given(clusters(), st.lists(wants, max_size=6), st.data())
def test_a_simulated_loss_does_not_change_the_capacity(
    node_index: NodeIndex, lost: list[Requirements], data: st.DataObject
) -> None:
    if not node_index.slots:
        return
    node_id = data.draw(st.sampled_from(sorted(node_index.slots)))
    movable = {WorkloadId(f"m{number}"): needs for number, needs in enumerate(lost)}
    before = snapshot(node_index)

    loss = simulate_loss(node_id, movable, node_index)

    assert snapshot(node_index) == before
    assert loss.moved + len(loss.stranded) == len(lost)


@settings(deadline=None)
@given(clusters(), wants)
def test_a_reservation_in_a_copied_index_does_not_change_the_original(
    node_index: NodeIndex, needs: Requirements
) -> None:
    clone, before = node_index.copy(), snapshot(node_index)
    assert snapshot(clone) == before

    placed_until_full(needs, clone)

    assert snapshot(node_index) == before


def placed_until_full(needs: Requirements, node_index: NodeIndex) -> int:
    for number in range(MANY):
        slot = choose(needs, node_index)
        if slot is None:
            return number
        hold(WorkloadId(f"new-{number}"), slot.node_id, needs, node_index)
    return MANY


def hold(
    workload_id: WorkloadId, node_id: NodeId, needs: Requirements, node_index: NodeIndex
) -> None:
    rules = needs.rules
    node_index.hold(
        workload_id,
        node_id,
        needs.resources,
        needs.host_ports,
        group=rules.group,
        apart=rules.apart,
    )


def snapshot(node_index: NodeIndex) -> tuple[list[NodeSlot], list[NodeId]]:
    return (
        [slot.copy() for slot in node_index.slots.values()],
        [slot.node_id for slot in node_index.in_order()],
    )
