"""Which waiting workloads make a node pool grow, and which pool grows for each of them."""

from dataclasses import replace as changed
from datetime import timedelta

import pytest
from msgspec.structs import replace

from builders import add_node
from nodepool_builders import LARGE, NOW, SMALL, a_machine, a_pool
from persys.core.nodepools.demand import (
    ASSUMED_TRAITS,
    Pending,
    PoolView,
    accepting_sizes,
    share_out,
)
from persys.core.nodepools.growth import Fleet
from persys.core.placement.index.node_index import Hold, NodeIndex
from persys.core.placement.requirements import Requirements, TierAccess
from persys.model.ids import WorkloadId
from persys.model.nodepool import MachineState, NodePool, PoolId
from persys.model.placement import Constraint, HostPort, Operator, Resources, Rules

CONTAINER = frozenset({"type:container"})


def a_need(cpu: int = 1000, *, rules: Rules | None = None, port: int = 0) -> Requirements:
    ports = frozenset({HostPort(port)}) if port else frozenset()
    return Requirements(Resources(cpu, 512), CONTAINER, ports, rules or Rules())


def a_full_cluster(labels: dict[str, str] | None = None) -> NodeIndex:
    index = NodeIndex()
    add_node(index, "n1", cpu=500, labels=labels or {})
    return index


def shared(
    need: Requirements,
    *views: PoolView,
    index: NodeIndex | None = None,
) -> dict[PoolId, int]:
    pending = Pending(WorkloadId("web"), need, NOW)
    found = share_out([pending], views or [PoolView(a_pool(), Fleet(()), {})], _or(index), NOW)
    return {pool_id: len(waiting) for pool_id, waiting in found.items() if waiting}


def _or(index: NodeIndex | None) -> NodeIndex:
    return index if index is not None else a_full_cluster()


def a_view(pool: NodePool, *states: MachineState) -> PoolView:
    machines = [a_machine(at, state, age=5) for at, state in enumerate(states, 1)]
    own = [replace(machine, pool_id=pool.pool_id) for machine in machines]
    return PoolView(pool, Fleet(own), {})


def labelled(key: str, value: str) -> Rules:
    return Rules(constraints=(Constraint(key, Operator.EQUALS, (value,)),))


def test_a_workload_that_lacks_cpu_makes_the_pool_grow() -> None:
    assert shared(a_need()) == {"burst": 1}


def test_a_workload_that_waits_for_a_port_does_not() -> None:
    index = NodeIndex()
    node_id = add_node(index, "n1", cpu=8000)
    taken = Hold(Resources(), frozenset({HostPort(80)}))
    index.put_hold(WorkloadId("other"), node_id, taken)

    assert shared(a_need(port=80), index=index) == {}


def test_a_workload_whose_constraint_no_machine_meets_does_not() -> None:
    assert shared(a_need(rules=labelled("disk", "ssd"))) == {}


def test_a_workload_whose_constraint_only_machines_of_the_pool_meet_does() -> None:
    view = a_view(a_pool(labels={"gpu": "yes"}))

    assert shared(a_need(rules=labelled("gpu", "yes")), view) == {"burst": 1}


def test_a_workload_that_does_not_tolerate_the_taints_of_the_pool_does_not() -> None:
    view = a_view(a_pool(taints=frozenset({"burst=only"})))

    assert shared(a_need(), view) == {}
    assert shared(a_need(rules=Rules(tolerations=("burst",))), view) == {"burst": 1}


def test_a_workload_for_an_image_or_a_runtime_that_machines_lack_does_not() -> None:
    need = a_need()

    assert shared(changed(need, traits=frozenset({"type:vm"}))) == {}
    assert shared(changed(need, traits=frozenset({"type:container", "image:debian"}))) == {}


def test_a_pool_of_a_higher_tier_grows_only_for_workloads_that_may_be_offloaded() -> None:
    view = a_view(a_pool(tier=1))
    waits = changed(a_need(), tiers=TierAccess(waits=True))

    assert shared(a_need(), view) == {}
    assert shared(changed(a_need(), tiers=TierAccess(offload=True)), view) == {"burst": 1}
    assert shared(waits, view) == {"burst": 1}


@pytest.mark.parametrize(("cpu", "sizes"), [(1000, {"small", "large"}), (4000, {"large"})])
def test_only_sizes_that_take_the_workload_are_considered(cpu: int, sizes: set[str]) -> None:
    assert accepting_sizes(a_pool(), a_need(cpu), ASSUMED_TRAITS) == sizes


def test_the_lowest_tier_grows_first_then_the_cheapest_pool() -> None:
    cheap = a_view(a_pool(pool_id=PoolId("cheap"), sizes=(SMALL,)))
    dear = a_view(a_pool(pool_id=PoolId("dear"), sizes=(LARGE,)))
    far = a_view(a_pool(pool_id=PoolId("far"), tier=1, sizes=(SMALL,)))
    may_offload = changed(a_need(), tiers=TierAccess(offload=True))

    assert shared(may_offload, far, dear, cheap) == {"cheap": 1}
    assert shared(may_offload, far, dear) == {"dear": 1}


def test_a_pool_that_cannot_grow_is_skipped() -> None:
    full = a_view(a_pool(pool_id=PoolId("a"), max_machines=0))
    other = a_view(a_pool(pool_id=PoolId("b")))

    assert shared(a_need(), full, other) == {"b": 1}
    assert shared(a_need(), full) == {"a": 1}


def test_a_workload_stays_with_the_pool_whose_machine_is_under_way() -> None:
    at_limit = a_view(a_pool(pool_id=PoolId("z"), max_machines=1), MachineState.BOOTING)
    other = a_view(a_pool(pool_id=PoolId("a")))

    assert shared(a_need(), other, at_limit) == {"z": 1}


def test_the_order_of_the_queue_is_kept() -> None:
    queue = [Pending(WorkloadId(f"w{at}"), a_need(), NOW - timedelta(at)) for at in range(5)]

    found = share_out(queue, [a_view(a_pool())], a_full_cluster(), NOW)

    assert [one.workload_id for one in found[PoolId("burst")]] == [f"w{at}" for at in range(5)]
