"""Capacity planning: how many more workloads fit, per node, and which do not fit if a node is lost.

Both use the filters of placement on a copy of the node index, so nothing is reserved in the cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from persys.core.placement.filters import Filter, crowded, reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import choose
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources

_ONCE_PER_NODE = frozenset({Filter.ANTI_AFFINITY, Filter.HOST_PORT, Filter.PROJECT})


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    node_id: NodeId
    fits: int | None  # None: any number, since it needs no limited resource
    limited_by: str
    tier: int = 0


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """The consequences of a lost node."""

    node_id: NodeId
    moved: int
    stranded: tuple[WorkloadId, ...]


def capacity_of(slot: NodeSlot, needs: Requirements) -> NodeCapacity:
    first = reject(slot, needs)
    if first is not None:
        return NodeCapacity(slot.node_id, 0, first.detail, slot.tier)
    second = crowded(_with(slot, needs, 1), needs)
    if second is not None and second.filter in _ONCE_PER_NODE:
        return NodeCapacity(slot.node_id, 1, second.detail, slot.tier)
    fits = _times(slot.free, needs.resources)
    if slot.pools is not None:
        in_pools = slot.pools.times(needs.resources.disk_gb, needs.pools)
        fits = min((each for each in (fits, in_pools) if each is not None), default=None)
    if fits is None:
        return NodeCapacity(slot.node_id, None, "", slot.tier)
    last = crowded(_with(slot, needs, fits), needs)
    assert last is not None
    return NodeCapacity(slot.node_id, fits, last.detail, slot.tier)


def total_of(capacities: Iterable[NodeCapacity]) -> int | None:
    """None: any number."""
    total = 0
    for capacity in capacities:
        if capacity.fits is None:
            return None
        total += capacity.fits
    return total


def simulate_loss(
    node_id: NodeId, movable: Mapping[WorkloadId, Requirements], node_index: NodeIndex
) -> NodeLoss:
    """Place each of its workloads on another node, the largest first. The index is restored afterwards."""
    lost = node_index.slots[node_id]
    closed_before = lost.closed
    node_index.close(node_id, "lost")
    taken: list[tuple[WorkloadId, NodeId]] = []
    stranded: list[WorkloadId] = []
    unplaceable: set[Requirements] = set()
    by_size = sorted(movable, key=lambda found: (-_share(movable[found], lost), found))
    for workload_id in by_size:
        needs = movable[workload_id]
        found = choose(needs, node_index) if needs not in unplaceable else None
        if found is None:
            unplaceable.add(needs)  # free capacity only shrinks here
            stranded.append(workload_id)
        else:
            stand_in = _stand_in(workload_id)
            _hold(stand_in, found.node_id, needs, node_index)
            taken.append((stand_in, found.node_id))
    for stand_in, elsewhere in taken:
        node_index.give_back(stand_in, elsewhere)
    node_index.close(node_id, closed_before)
    return NodeLoss(node_id, len(taken), tuple(sorted(stranded)))


def _hold(
    workload_id: WorkloadId, node_id: NodeId, needs: Requirements, node_index: NodeIndex
) -> None:
    node_index.hold(
        workload_id,
        node_id,
        needs.resources,
        needs.host_ports,
        group=needs.rules.group,
        apart=needs.rules.apart,
        pools=needs.pools,
    )


def _stand_in(workload_id: WorkloadId) -> WorkloadId:
    """With its own id it would share, and then release, the reservation of an old copy there."""
    return WorkloadId(f"moved {workload_id}")


def _with(slot: NodeSlot, needs: Requirements, times: int) -> NodeSlot:
    """The node with `times` additional workloads."""
    need, free, group = needs.resources, slot.free, needs.rules.group
    pools = slot.pools and slot.pools.copy()
    if pools is not None:
        pools.take(need.disk_gb, needs.pools, times=times)
    return replace(
        slot,
        free=Resources(
            free.cpu_millicores - times * need.cpu_millicores,
            free.memory_mb - times * need.memory_mb,
            free.disk_gb - times * need.disk_gb,
        ),
        ports=slot.ports | dict.fromkeys(needs.host_ports, 1) if needs.host_ports else slot.ports,
        members=slot.members | {group: 1} if group else slot.members,
        apart=slot.apart | {group: 1} if group and needs.rules.apart else slot.apart,
        pools=pools,
    )


def _times(free: Resources, need: Resources) -> int | None:
    """How many fit into the free amounts; None when it needs nothing."""
    shares = [
        have // want
        for have, want in (
            (free.cpu_millicores, need.cpu_millicores),
            (free.memory_mb, need.memory_mb),
            (free.disk_gb, need.disk_gb),
        )
        if want > 0
    ]
    return min(shares, default=None)


def _share(needs: Requirements, slot: NodeSlot) -> float:
    """The largest share of the node's resources that it takes."""
    need, total = needs.resources, slot.allocatable
    return max(
        need.cpu_millicores / max(1, total.cpu_millicores),
        need.memory_mb / max(1, total.memory_mb),
        need.disk_gb / max(1, total.disk_gb),
    )
