"""Which waiting workloads a new machine would take, and which pool grows for each of them.

A pool grows only for workloads that lack cpu, memory or disk. A workload that waits for a free port, for an
image, for its volume or for a label that the machines of the pool do not have is not a reason to grow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from persys.core.nodepools.growth import Fleet, Room, blocked, cheapest, rooms_of
from persys.core.nodepools.steps import PoolNode, Waiting
from persys.core.placement.explain import explain
from persys.core.placement.filters import Filter, reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements, TierAccess
from persys.model import feature
from persys.model.ids import NodeId, WorkloadId
from persys.model.nodepool import MachineSize, NodePool, PoolId

_AMOUNTS = {Filter.CPU, Filter.MEMORY, Filter.DISK}
_EXCLUSIVE = {Filter.HOST_PORT, Filter.PROJECT, Filter.ANTI_AFFINITY}
_OFFLOADED = TierAccess(offload=True)

# What a machine is assumed to have before the first one of its pool has registered.
ASSUMED_TRAITS = frozenset(
    {"type:container", "type:compose", "driver:local", "pool:local"}
    | {
        f"feature:{name}"
        for name in (
            feature.CONTAINER_LIMITS,
            feature.COMPOSE,
            feature.COMPOSE_GIT,
            feature.COMPOSE_PROJECT,
            feature.STOP_AFTER,
            feature.RUN_ONCE,
            feature.HEALTH,
            feature.CREDENTIALS,
            feature.FILES,
        )
    }
)


@dataclass(frozen=True, slots=True)
class Pending:
    """A workload in the queue. `grows_at`: it has waited long enough from then on."""

    workload_id: WorkloadId
    needs: Requirements
    grows_at: datetime


@dataclass(frozen=True, slots=True)
class PoolView:
    pool: NodePool
    fleet: Fleet
    nodes: Mapping[NodeId, PoolNode]
    traits: frozenset[str] = ASSUMED_TRAITS  # of its machines


def share_out(
    queue: Sequence[Pending], pools: Sequence[PoolView], index: NodeIndex, now: datetime
) -> dict[PoolId, list[Waiting]]:
    """The waiting workloads of each pool, in the order of the queue.

    Each goes to the pool whose machines under way take it; else to one that can grow, the lowest tier first,
    then the cheapest machine.
    """
    shared: dict[PoolId, list[Waiting]] = {view.pool.pool_id: [] for view in pools}
    matching = _Matching(pools, index)
    rooms = {
        view.pool.pool_id: rooms_of(view.pool, view.fleet.machines, view.nodes, now)
        for view in pools
    }
    for pending in queue:
        waiting = matching.waiting(pending)
        if waiting and (pool_id := _choose(waiting, pools, rooms, now)) is not None:
            shared[pool_id].append(waiting[pool_id])
    return shared


def _choose(
    waiting: Mapping[PoolId, Waiting],
    pools: Sequence[PoolView],
    rooms: Mapping[PoolId, list[Room]],
    now: datetime,
) -> PoolId | None:
    for pool_id, one in waiting.items():
        if any(room.take(one) for room in rooms[pool_id]):
            return pool_id
    ranked = [
        (_is_blocked(view, its, now), view.pool.tier, _size_for(view.pool, its).hour_price, pool_id)
        for view in pools
        if (its := waiting.get(pool_id := view.pool.pool_id)) is not None
    ]
    return min(ranked)[-1] if ranked else None


def _is_blocked(view: PoolView, waiting: Waiting, now: datetime) -> bool:
    return blocked(view.pool, view.fleet, _size_for(view.pool, waiting), now) is not None


def _size_for(pool: NodePool, waiting: Waiting) -> MachineSize:
    return cheapest([size for size in pool.sizes if size.name in waiting.sizes])


class _Matching:
    """Equal requirements are evaluated once: thousands of workloads may wait."""

    def __init__(self, pools: Sequence[PoolView], index: NodeIndex) -> None:
        self._pools = [view for view in pools if not view.pool.deleting]
        self._index = index
        self._sizes: dict[Requirements, dict[PoolId, frozenset[str]]] = {}

    def waiting(self, pending: Pending) -> dict[PoolId, Waiting]:
        needs = pending.needs
        if needs not in self._sizes:
            self._sizes[needs] = self._sizes_for(needs)
        return {
            pool_id: Waiting(pending.workload_id, needs.resources, pending.grows_at, sizes)
            for pool_id, sizes in self._sizes[needs].items()
        }

    def _sizes_for(self, needs: Requirements) -> dict[PoolId, frozenset[str]]:
        found = {
            view.pool.pool_id: sizes
            for view in self._pools
            if (sizes := accepting_sizes(view.pool, needs, view.traits))
        }
        return found if found and lacks_capacity(needs, self._index) else {}


def accepting_sizes(pool: NodePool, needs: Requirements, traits: frozenset[str]) -> frozenset[str]:
    """The sizes of which an empty machine would take the workload."""
    later = replace(needs, tiers=_OFFLOADED) if needs.tiers.waits else needs
    return frozenset(
        size.name for size in pool.sizes if reject(_slot(pool, size, traits), later) is None
    )


def lacks_capacity(needs: Requirements, index: NodeIndex) -> bool:
    """Whether it waits for cpu, memory or disk, and not only for a port or another of its group."""
    reasons = {found for found, _ in explain(needs, index, limit=0).counts}
    return bool(reasons & _AMOUNTS) or not reasons & _EXCLUSIVE


def known_traits(slots: Iterable[NodeSlot]) -> frozenset[str]:
    """Those of all registered machines of a pool; assumed ones if there is none."""
    found = [slot.traits for slot in slots]
    return frozenset.intersection(*found) if found else ASSUMED_TRAITS


def _slot(pool: NodePool, size: MachineSize, traits: frozenset[str]) -> NodeSlot:
    has = size.resources
    facts = {
        "node.cpu_millicores": str(has.cpu_millicores),
        "node.memory_mb": str(has.memory_mb),
        "node.disk_gb": str(has.disk_gb),
    }
    return NodeSlot(
        NodeId(""),
        0,
        has,
        traits,
        "",
        has,
        labels={**pool.labels, **facts},
        taints=pool.taints,
        tier=pool.tier,
    )
