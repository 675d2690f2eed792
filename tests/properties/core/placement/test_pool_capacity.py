"""Pool capacity: the fast searches agree with the reference, and no pool is overcommitted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import times
from persys.core.placement.capacity import capacity_of
from persys.core.placement.explain import explain
from persys.core.placement.filters import reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import accounts_of, utilisation
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, StoragePool
from persys.model.placement import Draws, Resources

NODES = [NodeId(f"n{number:02}") for number in range(24)]

pools = st.lists(
    st.builds(
        StoragePool,
        name=st.sampled_from(["local", "fast", "slow"]),
        type=st.just("local"),
        total_gb=st.integers(0, 20),
        for_disks=st.booleans(),
    ),
    unique_by=lambda pool: pool.name,
).map(tuple)
sharing = st.sampled_from([(), (StoragePool("disks", "local", 0, "local", for_disks=True),)])
draws = st.dictionaries(st.sampled_from(["", "fast", "slow"]), st.integers(1, 9), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[NodeIndex, dict[NodeId, Capabilities]]:
    node_index, known = NodeIndex(), {}
    for node_id in NODES[: draw(st.integers(1, len(NODES)))]:
        describe = draw(pools)
        if any(pool.name == "local" for pool in describe):
            describe += draw(sharing)
        has = known[node_id] = Capabilities(4000, 8192, pools=describe)
        node_index.put_node(
            node_id,
            allocatable=has.allocatable,
            traits=frozenset(),
            accounts=accounts_of(has),
        )
    return node_index, known


def a_need(pools: Draws, rest: int) -> Requirements:
    return Requirements(Resources(10, 10, sum(gb for _, gb in pools) + rest), pools=pools)


wants = st.builds(a_need, draws, st.integers(0, 9))


@settings(max_examples=times(1.5), deadline=None)
@given(st.lists(wants, max_size=30), clusters())
def test_no_pool_is_given_more_than_it_has_and_the_best_is_chosen(
    many: list[Requirements], cluster: tuple[NodeIndex, dict[NodeId, Capabilities]]
) -> None:
    node_index, known = cluster
    given_gb: dict[tuple[NodeId, str], int] = {}
    for number, needs in enumerate(many):
        fitting = [slot for slot in node_index.slots.values() if reject(slot, needs) is None]
        best = min(
            ((utilisation(slot), slot.count, slot.node_id) for slot in fitting), default=None
        )
        found = place(needs, node_index)

        assert (found.node_id if isinstance(found, Placed) else None) == (best and best[2])
        assert explain(needs, node_index, limit=3).fit_count == len(fitting)
        if isinstance(found, Placed):
            assert capacity_of(node_index.slots[found.node_id], needs).fits != 0
            node_index.hold(
                WorkloadId(f"w{number}"),
                found.node_id,
                needs.resources,
                needs.host_ports,
                pools=needs.pools,
            )
            accounts = accounts_of(known[found.node_id])
            if accounts is not None:
                for account, size_gb in accounts.drawn(
                    needs.resources.disk_gb, needs.pools
                ).items():
                    key = (found.node_id, account)
                    given_gb[key] = given_gb.get(key, 0) + size_gb
                    assert given_gb[key] <= accounts.total_gb[account]


@settings(max_examples=times(1), deadline=None)
@given(st.lists(st.tuples(wants, st.integers(0, 3)), max_size=20), clusters())
def test_free_pool_capacity_is_reported_minus_reserved(
    steps: list[tuple[Requirements, int]], cluster: tuple[NodeIndex, dict[NodeId, Capabilities]]
) -> None:
    node_index, known = cluster
    node_id = NODES[0]
    for needs, slot in steps:
        name = WorkloadId(f"w{slot}")
        if node_index.held(name, node_id) is None:
            node_index.hold(name, node_id, needs.resources, frozenset(), pools=needs.pools)
        else:
            node_index.give_back(name, node_id)

    fresh = NodeIndex()
    has = known[node_id]
    for name, hold in node_index.holders(node_id).items():
        fresh.hold(name, node_id, hold.resources, hold.host_ports, pools=hold.pools)
    fresh.put_node(
        node_id, allocatable=has.allocatable, traits=frozenset(), accounts=accounts_of(has)
    )
    left, rebuilt = node_index.slots[node_id].pools, fresh.slots[node_id].pools
    assert (left and left.free_gb) == (rebuilt and rebuilt.free_gb)
