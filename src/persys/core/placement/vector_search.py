"""Search through all nodes with arrays: the same filters and the same score as for single nodes."""

from bisect import bisect_left
from functools import partial
from itertools import islice
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.arrays import Eligible
from persys.core.placement.constraints import holds_for
from persys.core.placement.filters import repels
from persys.core.placement.node_index import NodeIndex
from persys.core.placement.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import strategy_of
from persys.model.placement import Strategy

KEPT_MAX = 64
FEW = 64

Positions = NDArray[np.int64]


def search(needs: Requirements, node_index: NodeIndex) -> NodeSlot | None:
    fits = fitting(needs, node_index)
    left = np.flatnonzero(fits)
    if not left.size:
        return None
    if needs.rules.group:
        left = _with_least_company(left, needs, node_index)
    full = node_index.arrays.full[left]
    packs = strategy_of(needs, node_index) is Strategy.BINPACK
    left = _lowest(left, 1 - full if packs else full)
    left = _lowest(left, node_index.arrays.count[left])
    return _lowest_id(left, node_index)


def fitting(needs: Requirements, node_index: NodeIndex) -> NDArray[np.bool_]:
    """By position, whether `reject` accepts the node."""
    group = needs.rules.group
    fits = node_index.arrays.enough_for(needs.resources)
    fits &= eligible(needs, node_index).mask
    if group and needs.rules.apart:
        fits &= node_index.groups.by_position(group, len(fits)) == 0
    elif group and node_index.groups.has_apart(group):
        for slot in node_index.groups.rows_of(group).values():
            if group in slot.apart:
                fits[slot.position] = False
    for port in needs.host_ports:
        for slot in node_index.port_holders.get(port, {}).values():
            fits[slot.position] = False
    for slot in node_index.pooled.values():
        assert slot.pools is not None
        if slot.pools.short_of(needs.resources.disk_gb, needs.pools):
            fits[slot.position] = False
    return fits


def eligible(needs: Requirements, node_index: NodeIndex) -> Eligible:
    """By position, whether `unfit` accepts the node if it is open. Cached until a node changes."""
    rules = needs.rules
    key = (needs.traits, rules.constraints, rules.tolerations)
    found = node_index.eligible.get(key)
    if found is None:
        mask = node_index.traits.where(needs.traits, needs.traits.issubset)
        if node_index.tainted:
            mask &= node_index.taints.where(
                rules.tolerations, lambda taints: not repels(taints, rules)
            )
        for constraint in rules.constraints:
            said = node_index.labelled(constraint.key)
            mask &= said.where(constraint, partial(holds_for, constraint))
        if len(node_index.eligible) >= KEPT_MAX:
            node_index.eligible.clear()
        found = node_index.eligible[key] = Eligible(mask, mask.tobytes())
    return found


def _with_least_company(left: Positions, needs: Requirements, node_index: NodeIndex) -> Positions:
    group, groups = needs.rules.group, node_index.groups
    for key in needs.rules.spread_over:
        levels = node_index.labelled(key).levels(groups.tally(group, key))
        left = _lowest(left, levels[left])
    return _lowest(left, groups.by_position(group, len(node_index.arrays.open))[left])


def _lowest_id(left: Positions, node_index: NodeIndex) -> NodeSlot:
    """The lowest id among nodes with equal utilisation and equal number of workloads."""
    slots = map(node_index.at, left.tolist())
    if left.size <= FEW:
        return min(slots, key=attrgetter("node_id"))
    among = np.zeros(len(node_index.arrays.open), dtype=np.bool_)
    among[left] = True
    ranks = node_index.order.ranks  # they are adjacent here
    begin = bisect_left(ranks, next(slots).rank[:2])
    in_turn = (node_index.slots[node_id] for _, _, node_id in islice(ranks, begin, None))
    return next(slot for slot in in_turn if among[slot.position])


def _lowest(left: Positions, values: NDArray[np.int64] | NDArray[np.float64]) -> Positions:
    lowest: Positions = left[values == values.min()]
    return lowest
