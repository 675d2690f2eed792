"""Finds the best node among many: an ordered search first, a search of all nodes with arrays if it gives up.

`ordered_search` checks the first few nodes in order, or those of the domains with the fewest group members.
The first node that fits, with the smallest possible number of group members near it, is the best. A search
that would take too long raises TooFarError, without a result. `vector_search` applies the same filters and
the same score to all nodes at once. Only clusters with many nodes import this module.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.constraints import holds_for
from persys.core.placement.filters import crowded, oversized, repels
from persys.core.placement.index.arrays import Eligible, LabelEncoding
from persys.core.placement.index.group_counts import Tally
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.index.ranking import (
    Arrangement,
    ChunkedOrder,
    Domain,
    Entry,
    Ranking,
    TooFarError,
)
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import GroupProximity, strategy_of
from persys.model.placement import Strategy

KEPT_MAX = 64
FEW = 64

Positions = NDArray[np.int64]


def vector_search(needs: Requirements, node_index: NodeIndex) -> NodeSlot | None:
    fits = fitting(needs, node_index)
    left = np.flatnonzero(fits)
    if not left.size:
        return None
    if needs.rules.group:
        left = _narrow_by_group(left, needs, node_index)
    full = node_index.all_nodes.arrays.full[left]
    packs = strategy_of(needs, node_index) is Strategy.BINPACK
    left = _lowest(left, 1 - full if packs else full)
    left = _lowest(left, node_index.all_nodes.arrays.count[left])
    return _lowest_id(left, node_index)


def fitting(needs: Requirements, node_index: NodeIndex) -> NDArray[np.bool_]:
    """By position, whether `reject` accepts the node."""
    group = needs.rules.group
    fits = node_index.all_nodes.arrays.enough_for(needs.resources)
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
    for slot in node_index.limited.values():
        if slot.largest is not None and oversized(slot.largest, needs.resources):
            fits[slot.position] = False
    return fits


def eligible(needs: Requirements, node_index: NodeIndex) -> Eligible:
    """By position, whether `unfit` accepts the node if it is open. Cached until a node changes."""
    rules = needs.rules
    key = (needs.traits, rules.constraints, rules.tolerations)
    found = node_index.eligible.get(key)
    if found is None:
        mask = node_index.all_nodes.traits.where(needs.traits, needs.traits.issubset)
        if node_index.tainted:
            mask &= node_index.all_nodes.taints.where(
                rules.tolerations, lambda taints: not repels(taints, rules)
            )
        for constraint in rules.constraints:
            labels = node_index.labelled(constraint.key)
            mask &= labels.where(constraint, partial(holds_for, constraint))
        if len(node_index.eligible) >= KEPT_MAX:
            node_index.eligible.clear()
        found = node_index.eligible[key] = Eligible(mask, mask.tobytes())
    return found


def _narrow_by_group(left: Positions, needs: Requirements, node_index: NodeIndex) -> Positions:
    group, groups = needs.rules.group, node_index.groups
    for key in needs.rules.spread_over:
        levels = node_index.labelled(key).levels(groups.tally(group, key))
        left = _lowest(left, levels[left])
    return _lowest(left, groups.by_position(group, len(node_index.all_nodes.arrays.open))[left])


def _lowest_id(left: Positions, node_index: NodeIndex) -> NodeSlot:
    """The lowest id among nodes with equal utilisation and equal number of workloads."""
    slots = map(node_index.at, left.tolist())
    if left.size <= FEW:
        return min(slots, key=attrgetter("node_id"))
    among = np.zeros(len(node_index.all_nodes.arrays.open), dtype=np.bool_)
    among[left] = True
    ranks = node_index.order.ranks  # they are adjacent here
    begin = bisect_left(ranks, next(slots).rank[:2])
    in_turn = (node_index.slots[node_id] for _, _, node_id in islice(ranks, begin, None))
    return next(slot for slot in in_turn if among[slot.position])


def _lowest(left: Positions, values: NDArray[np.int64] | NDArray[np.float64]) -> Positions:
    lowest: Positions = left[values == values.min()]
    return lowest


Level = tuple[int, ...]  # number of group members nearby, per label and then on the node
Near = Callable[[NodeSlot], Level]

STEPS_MAX = 16  # eligible nodes that are checked
LOOKS_MAX = 128  # nodes in total, including ineligible ones
DOMAINS_WALKED_MAX = 16
DOMAINS_COUNTED_MAX = 256


def ordered_search(needs: Requirements, node_index: NodeIndex) -> NodeSlot | None:
    """The best node; None: no node fits. TooFarError: not found within the limits."""
    rules, packs = needs.rules, strategy_of(needs, node_index) is Strategy.BINPACK
    if not rules.group:
        return _first(needs, node_index, Arrangement(packs))
    proximity = GroupProximity(needs, node_index)
    by_group = Arrangement(packs, rules.spread_over, rules.group)
    ranking = node_index.ranking_cache.kept(needs, by_group)
    if ranking is None:
        try:
            return _with_fewest_members(needs, node_index, proximity, packs=packs)
        except TooFarError:
            ranking = node_index.ranking_cache.earned(
                needs, by_group, eligible(needs, node_index).each
            )
            if ranking is None:
                raise
    return _by_group_ranking(needs, node_index, ranking, proximity)


def _first(needs: Requirements, node_index: NodeIndex, by: Arrangement) -> NodeSlot | None:
    ranking = node_index.ranking_cache.kept(needs, by)
    if ranking is None:
        try:
            return _first_in_order(needs, node_index)
        except TooFarError:
            ranking = node_index.ranking_cache.earned(needs, by, eligible(needs, node_index).each)
            if ranking is None:
                raise
    if not ranking.domains():
        return None
    entry = ranking.part(()).first(needs.resources, lambda slot: crowded(slot, needs) is None)
    return node_index.slots[entry[3]] if entry is not None else None


def _first_in_order(
    needs: Requirements,
    node_index: NodeIndex,
    near_to: Near = lambda _: (),
    least: Level = (),
) -> NodeSlot:
    """The first node that fits and has the smallest possible number of group members near it."""
    if strategy_of(needs, node_index) is Strategy.BINPACK:
        raise TooFarError  # the nodes with the highest utilisation have no capacity
    slots, could = node_index.slots, eligible(needs, node_index).each
    steps = 0
    for _, _, node_id in islice(node_index.order.ranks, LOOKS_MAX):
        slot = slots[node_id]
        if could[slot.position]:
            if (not least or near_to(slot) == least) and crowded(slot, needs) is None:
                return slot
            steps += 1
            if steps == STEPS_MAX:
                break
    raise TooFarError


def _by_group_ranking(
    needs: Requirements, node_index: NodeIndex, ranking: Ranking, proximity: GroupProximity
) -> NodeSlot | None:
    """With a ranking for the group: the first node of a domain is the best there."""

    def fits(slot: NodeSlot) -> bool:
        return crowded(slot, needs) is None

    def pick(part: ChunkedOrder, _: Level) -> Entry | None:
        return part.first(needs.resources, fits)

    return _rarest_first(ranking, pick, node_index, proximity)


def _with_fewest_members(
    needs: Requirements, node_index: NodeIndex, proximity: GroupProximity, *, packs: bool
) -> NodeSlot | None:
    """With rankings without the group: if few nodes have members, the first nodes have none."""
    if not proximity.tallies:
        return _first_in_order(needs, node_index, proximity.of, (0,))
    key, tally = proximity.tallies[0]
    could = eligible(needs, node_index).each
    ranking = node_index.ranking_cache.earned(needs, Arrangement(packs, (key,)), could)
    if ranking is None:
        raise TooFarError
    lowest, alike = _fewest_members(tally, ranking.domains())
    beyond: Level = (0,)
    for label, counts in reversed(proximity.tallies[1:]):
        beyond = (_least(counts, node_index.labelled(label)), *beyond)
    if alike > 1:
        # The nodes with the lowest utilisation are likely to be in one of several domains.
        try:
            return _first_in_order(needs, node_index, proximity.of, (lowest, *beyond))
        except TooFarError:
            if alike > DOMAINS_WALKED_MAX:
                raise

    def pick(part: ChunkedOrder, level: Level) -> Entry | None:
        return _first_without_members(part, needs, proximity, level + beyond)

    return _rarest_first(ranking, pick, node_index, proximity)


def _first_without_members(
    part: ChunkedOrder, needs: Requirements, proximity: GroupProximity, least: Level
) -> Entry | None:
    """The first node with the fewest group members nearby; TooFarError if only other nodes fit."""
    others = False

    def has_no_members(slot: NodeSlot) -> bool:
        nonlocal others
        if crowded(slot, needs) is not None:
            return False
        others = True
        return proximity.of(slot) == least

    found = part.first(needs.resources, has_no_members)
    if found is None and others:
        raise TooFarError
    return found


def _rarest_first(
    ranking: Ranking,
    pick: Callable[[ChunkedOrder, Level], Entry | None],
    node_index: NodeIndex,
    proximity: GroupProximity,
) -> NodeSlot | None:
    """The best node of the domains with the fewest group members that have a fitting node."""
    domains = ranking.domains()
    if len(domains) > DOMAINS_COUNTED_MAX:
        raise TooFarError
    for level, alike in proximity.rarest(domains):
        if len(alike) > DOMAINS_WALKED_MAX:
            raise TooFarError
        found = [one for domain in alike if (one := pick(ranking.part(domain), level)) is not None]
        if found:
            return node_index.slots[min(found)[3]]
    return None


def _fewest_members(tally: Tally, domains: Collection[Domain]) -> tuple[int, int]:
    """The lowest number of group members in a domain, and at least how many domains have it."""
    without = len(domains) - len(tally)
    if without > DOMAINS_WALKED_MAX:
        return 0, without
    counts = [tally.get(domain[0], 0) for domain in domains]
    lowest = min(counts, default=0)
    return lowest, counts.count(lowest)


def _least(tally: Tally, values: LabelEncoding[str | None]) -> int:
    """A lower bound for the number of group members in a domain."""
    return min(tally.values()) if tally and len(tally) >= len(values) else 0
