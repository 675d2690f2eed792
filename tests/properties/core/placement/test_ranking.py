"""A ranking that is updated through a history equals a newly built one."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CONTAINER
from examples import times
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.ranking import (
    LOOKS_MAX,
    WORTH_KEEPING,
    Arrangement,
    ChunkedOrder,
    Domain,
    Entry,
    Ranking,
    TooFarError,
)
from persys.core.placement.requirements import Requirements
from persys.core.placement.search import eligible
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Constraint, Operator, Resources, Rules

NODES = [NodeId(f"n{number:03}") for number in range(200)]
NOT_B = Constraint("zone", Operator.DIFFERS, ("b",))
NEEDS = Requirements(Resources(100, 64), CONTAINER, rules=Rules(constraints=(NOT_B,)))

arrangements = st.builds(
    Arrangement, st.booleans(), st.sampled_from([(), ("zone",), ("zone", "rack")]), st.just("g")
)


@settings(max_examples=times(0.4), deadline=None)
@given(arrangements, st.integers(0, 1 << 32).map(Random))
def test_an_updated_ranking_equals_a_new_one(by: Arrangement, random: Random) -> None:
    node_index = NodeIndex()
    for node_id in NODES:
        put(node_index, node_id, random)
    for _ in range(WORTH_KEEPING):
        kept = node_index.ranking_cache.earned(NEEDS, by, eligible(NEEDS, node_index).each)
    assert kept is not None

    for _ in range(20):
        for _ in range(random.randrange(25)):
            change(node_index, random.choice(NODES), random)

        could = eligible(NEEDS, node_index).each
        rebuilt = Ranking(NEEDS, by, node_index.slots, node_index.order, could=could)
        assert whole(kept) == whole(rebuilt)


@settings(max_examples=times(0.4), deadline=None)
@given(st.integers(0, 1 << 32).map(Random))
def test_the_first_node_with_enough_capacity_is_found_after_any_updates(random: Random) -> None:
    node_index = NodeIndex()
    for node_id in NODES:
        put(node_index, node_id, random)
    for _ in range(WORTH_KEEPING):
        could = eligible(NEEDS, node_index).each
        kept = node_index.ranking_cache.earned(NEEDS, Arrangement(packs=True), could)
    assert kept is not None

    for number in range(60):
        change(node_index, random.choice(NODES), random)
        kept.domains()
        part = kept.part(())
        needed = Resources(random.choice((0, 500, 1500, 3500)), random.choice((0, 2000)))
        expected = next(
            (entry for entry in part if needed.fits_in(node_index.slots[entry[3]].free)), None
        )
        found = part.first(needed, lambda _: True)
        assert found == expected
        if found is not None:
            node_index.hold(WorkloadId(f"w{number}"), found[3], needed, frozenset())


def test_a_walk_past_too_many_is_given_up() -> None:
    node_index = NodeIndex()
    for number in range(2 * LOOKS_MAX):
        # Some have cpu and some memory, so that no run can be passed.
        size = Resources(1000, 64) if number % 2 else Resources(10, 6400)
        node_index.put_node(NodeId(f"n{number:04}"), allocatable=size, traits=CONTAINER)
    part = ChunkedOrder([(0, *slot.rank) for slot in node_index.in_order()], node_index.slots)

    with pytest.raises(TooFarError):
        part.first(Resources(1000, 6400), lambda _: True)


def whole(ranking: Ranking) -> dict[Domain, list[Entry]]:
    parts = {domain: list(ranking.part(domain)) for domain in ranking.domains()}
    return {domain: entries for domain, entries in parts.items() if entries}


def put(node_index: NodeIndex, node_id: NodeId, random: Random) -> None:
    node_index.put_node(
        node_id,
        allocatable=Resources(random.choice((1000, 4000)), random.choice((1024, 8192)), 10),
        traits=CONTAINER,
        closed=random.choice(("", "", "", "cordoned")),
        labels={"zone": random.choice("abc"), "rack": random.choice("12")},
    )


def change(node_index: NodeIndex, node_id: NodeId, random: Random) -> None:
    workload_id = WorkloadId(f"w{random.randrange(3)}")
    match random.randrange(12):
        case 0:
            put(node_index, node_id, random)
        case 1:
            node_index.remove_node(node_id)
        case 2 if node_id in node_index.slots:
            node_index.close(node_id, random.choice(("", "draining")))
        case 3 | 4 | 5:
            node_index.give_back(workload_id, node_id)
        case _:
            needed = Resources(random.choice((0, 100, 900)), random.choice((0, 512)))
            node_index.hold(
                workload_id, node_id, needed, frozenset(), group=random.choice(("g", "h"))
            )
