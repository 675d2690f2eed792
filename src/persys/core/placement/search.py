"""The search through all nodes, in columns: the same filters and the same parts of the score."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.columns import Columns
from persys.core.placement.constraints import holds_for
from persys.core.placement.filters import repels
from persys.core.placement.needs import Needs
from persys.core.placement.row import Row
from persys.core.placement.score import strategy_of
from persys.model.rules import Strategy

Positions = NDArray[np.int64]


def search(needs: Needs, columns: Columns) -> Row | None:
    left = np.flatnonzero(fitting(needs, columns))
    if not left.size:
        return None
    if needs.rules.group:
        left = _with_least_company(left, needs, columns)
    full = columns.figures.full[left]
    packs = strategy_of(needs, columns) is Strategy.BINPACK
    left = _lowest(left, 1 - full if packs else full)
    left = _lowest(left, columns.figures.count[left])
    return min((columns.at(int(position)) for position in left), key=lambda row: row.node_id)


def fitting(needs: Needs, columns: Columns) -> NDArray[np.bool_]:
    """By position, whether `reject` has nothing against the node."""
    rules = needs.rules
    fits = columns.figures.enough_for(needs.resources)
    fits &= columns.traits.where(needs.traits, needs.traits.issubset)
    if columns.tainted:
        fits &= columns.taints.where(rules.tolerations, lambda taints: not repels(taints, rules))
    for constraint in rules.constraints:
        said = columns.labelled(constraint.key)
        fits &= said.where(constraint, partial(holds_for, constraint))
    for row in columns.groups.rows_of(rules.group).values():
        if rules.apart or rules.group in row.apart:
            fits[row.position] = False
    for port in needs.host_ports:
        for row in columns.port_holders.get(port, {}).values():
            fits[row.position] = False
    return fits


def _with_least_company(left: Positions, needs: Needs, columns: Columns) -> Positions:
    group, groups = needs.rules.group, columns.groups
    for key in needs.rules.spread_over:
        levels = columns.labelled(key).levels(groups.tally(group, key))
        left = _lowest(left, levels[left])
    members = np.zeros(len(columns.figures.open), dtype=np.int64)
    for row in groups.rows_of(group).values():
        members[row.position] = row.members[group]
    return _lowest(left, members[left])


def _lowest(left: Positions, values: NDArray[np.int64] | NDArray[np.float64]) -> Positions:
    lowest: Positions = left[values == values.min()]
    return lowest
