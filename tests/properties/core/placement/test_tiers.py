"""Offloading over random clusters and workloads: who may leave tier 0, and where to."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import CONTAINER, NOON, a_situation, a_workload
from examples import times
from persys.core.placement.capacity import capacity_of
from persys.core.placement.explain import explain
from persys.core.placement.filters import reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import HOME_ONLY, Requirements, TierAccess, holds_data
from persys.core.placement.select import Placed, choose, place
from persys.core.placement.tiers import placement_needs
from persys.core.reconcile.situation import Situation
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Offload, Resources, Rules
from persys.model.spec import ContainerSpec, VolumeMount
from persys.model.status import Status, WorkloadStatus
from properties.core.placement.test_placement import clusters, reference, wants

AFTER = timedelta(seconds=30)
access = st.sampled_from(
    [HOME_ONLY, TierAccess(offload=True), TierAccess(offload=True, preferred=True)]
)


@st.composite
def tiered_clusters(draw: st.DrawFn) -> NodeIndex:
    """Some of the nodes are in higher tiers, some of them with several machines behind them."""
    node_index = draw(clusters())
    for slot in list(node_index.slots.values()):
        tier = draw(st.sampled_from([0, 0, 1, 2]))
        node_index.put_node(
            slot.node_id,
            allocatable=slot.allocatable,
            traits=slot.traits,
            closed=slot.closed,
            labels=slot.labels,
            taints=slot.taints,
            tier=tier,
            price=draw(st.sampled_from([0.0, 0.1, 0.5])) if tier else 0.0,
            largest=draw(st.sampled_from([Resources(), Resources(500), Resources(1000, 512)])),
        )
    return node_index


def tier_of(node_id: NodeId | None, node_index: NodeIndex) -> int | None:
    return node_index.slots[node_id].tier if node_id is not None else None


def chosen(needs: Requirements, node_index: NodeIndex) -> NodeId | None:
    slot = choose(needs, node_index)
    return slot.node_id if slot is not None else None


@settings(max_examples=times(0.6), deadline=None)
@given(wants, access, clusters())
def test_without_higher_tiers_the_offload_rules_change_nothing(
    needs: Requirements, tiers: TierAccess, node_index: NodeIndex
) -> None:
    assert chosen(replace(needs, tiers=tiers), node_index) == reference(needs, node_index)


@settings(max_examples=times(0.6), deadline=None)
@given(wants, tiered_clusters())
def test_nodes_of_higher_tiers_do_not_affect_a_workload_that_stays_in_tier_0(
    needs: Requirements, node_index: NodeIndex
) -> None:
    """Groups count on all nodes, so they are left out."""
    needs = replace(needs, rules=Rules())
    home = node_index.copy()
    for node_id in list(home.beyond):
        home.remove_node(node_id)

    assert chosen(needs, node_index) == chosen(needs, home)


@settings(max_examples=times(0.6), deadline=None)
@given(wants, access, tiered_clusters())
def test_the_lowest_tier_that_fits_is_used_and_in_it_the_cheapest_node(
    needs: Requirements, tiers: TierAccess, node_index: NodeIndex
) -> None:
    needs = replace(needs, tiers=tiers)
    fitting = [slot for slot in node_index.slots.values() if reject(slot, needs) is None]

    slot = choose(needs, node_index)

    assert (slot is None) == (not fitting)
    if slot is None:
        return
    assert slot.tier == 0 or tiers.offload
    order = sorted({(_turn(one.tier, tiers), one.price) for one in fitting})
    assert (_turn(slot.tier, tiers), slot.price) == order[0]


def _turn(tier: int, tiers: TierAccess) -> int:
    """The position of a tier in the order of placement."""
    return 1000 if tiers.preferred and tier == 0 else tier


@settings(max_examples=times(0.6), deadline=None)
@given(wants, access, tiered_clusters())
def test_explain_and_capacity_agree_with_placement_in_all_tiers(
    needs: Requirements, tiers: TierAccess, node_index: NodeIndex
) -> None:
    needs = replace(needs, tiers=tiers)
    found = explain(needs, node_index, limit=len(node_index.slots))
    fits = [verdict.node_id for verdict in found.verdicts if verdict.rejection is None]

    assert (fits[0] if fits else None) == chosen(needs, node_index)
    assert found.fit_count == len(fits)
    for node_id, slot in node_index.slots.items():
        assert (capacity_of(slot, needs).fits != 0) == (node_id in fits)


DATA = ContainerSpec("db", volumes=(VolumeMount("/srv/data", "/data"),))
situations = st.builds(
    lambda offload, offload_data, spec, waited, federated: _situation(
        Rules(offload=offload, offload_data=offload_data and offload is not Offload.NEVER),
        spec,
        waited,
        {"persys.home_cluster": "north"} if federated else {},
    ),
    st.sampled_from(Offload),
    st.booleans(),
    st.sampled_from([None, DATA]),
    st.sampled_from([None, 0, 29, 30, 3600]),
    st.sampled_from([False, False, True]),
)


def _situation(
    rules: Rules, spec: ContainerSpec | None, waited: int | None, metadata: dict[str, str]
) -> Situation:
    status = None
    if waited is not None:
        since = NOON - timedelta(seconds=waited)
        status = WorkloadStatus(WorkloadId("web"), Status.PENDING, since)
    workload = a_workload(rules=rules, spec=spec, metadata=metadata)
    return a_situation(workload, workload_status=status)


@settings(max_examples=times(0.6), deadline=None)
@given(situations, tiered_clusters())
def test_nothing_is_offloaded_without_consent(situation: Situation, node_index: NodeIndex) -> None:
    needs = placement_needs(situation, NOON)
    found = place(replace(needs, traits=CONTAINER), node_index)
    if not isinstance(found, Placed) or not tier_of(found.node_id, node_index):
        return
    workload, status = situation.workload, situation.workload_status

    assert workload.rules.offload is not Offload.NEVER
    assert "persys.home_cluster" not in workload.metadata
    if holds_data(workload):
        assert workload.rules.offload_data
    if workload.rules.offload is Offload.WHEN_FULL:
        assert status is not None
        assert NOON - status.changed_at >= AFTER
        assert chosen(replace(needs, traits=CONTAINER, tiers=HOME_ONLY), node_index) is None
