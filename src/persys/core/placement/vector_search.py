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
from persys.core.placement.node_index import Columns
from persys.core.placement.node_slot import Row
from persys.core.placement.requirements import Needs
from persys.core.placement.score import strategy_of
from persys.model.placement import Strategy

KEPT_MAX = 64
FEW = 64

Positions = NDArray[np.int64]


def search(needs: Needs, columns: Columns) -> Row | None:
    fits = fitting(needs, columns)
    left = np.flatnonzero(fits)
    if not left.size:
        return None
    if needs.rules.group:
        left = _with_least_company(left, needs, columns)
    full = columns.figures.full[left]
    packs = strategy_of(needs, columns) is Strategy.BINPACK
    left = _lowest(left, 1 - full if packs else full)
    left = _lowest(left, columns.figures.count[left])
    return _lowest_id(left, columns)


def fitting(needs: Needs, columns: Columns) -> NDArray[np.bool_]:
    """By position, whether `reject` accepts the node."""
    group = needs.rules.group
    fits = columns.figures.enough_for(needs.resources)
    fits &= eligible(needs, columns).mask
    if group and needs.rules.apart:
        fits &= columns.groups.by_position(group, len(fits)) == 0
    elif group and columns.groups.has_apart(group):
        for row in columns.groups.rows_of(group).values():
            if group in row.apart:
                fits[row.position] = False
    for port in needs.host_ports:
        for row in columns.port_holders.get(port, {}).values():
            fits[row.position] = False
    for row in columns.pooled.values():
        assert row.pools is not None
        if row.pools.short_of(needs.resources.disk_gb, needs.pools):
            fits[row.position] = False
    return fits


def eligible(needs: Needs, columns: Columns) -> Eligible:
    """By position, whether `unfit` accepts the node if it is open. Cached until a node changes."""
    rules = needs.rules
    key = (needs.traits, rules.constraints, rules.tolerations)
    found = columns.eligible.get(key)
    if found is None:
        mask = columns.traits.where(needs.traits, needs.traits.issubset)
        if columns.tainted:
            mask &= columns.taints.where(
                rules.tolerations, lambda taints: not repels(taints, rules)
            )
        for constraint in rules.constraints:
            said = columns.labelled(constraint.key)
            mask &= said.where(constraint, partial(holds_for, constraint))
        if len(columns.eligible) >= KEPT_MAX:
            columns.eligible.clear()
        found = columns.eligible[key] = Eligible(mask, mask.tobytes())
    return found


def _with_least_company(left: Positions, needs: Needs, columns: Columns) -> Positions:
    group, groups = needs.rules.group, columns.groups
    for key in needs.rules.spread_over:
        levels = columns.labelled(key).levels(groups.tally(group, key))
        left = _lowest(left, levels[left])
    return _lowest(left, groups.by_position(group, len(columns.figures.open))[left])


def _lowest_id(left: Positions, columns: Columns) -> Row:
    """The lowest id among nodes with equal utilisation and equal number of workloads."""
    rows = map(columns.at, left.tolist())
    if left.size <= FEW:
        return min(rows, key=attrgetter("node_id"))
    among = np.zeros(len(columns.figures.open), dtype=np.bool_)
    among[left] = True
    ranks = columns.order.ranks  # they are adjacent here
    begin = bisect_left(ranks, next(rows).rank[:2])
    in_turn = (columns.rows[node_id] for _, _, node_id in islice(ranks, begin, None))
    return next(row for row in in_turn if among[row.position])


def _lowest(left: Positions, values: NDArray[np.int64] | NDArray[np.float64]) -> Positions:
    lowest: Positions = left[values == values.min()]
    return lowest
