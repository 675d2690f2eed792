"""Ordered search: checks the first few nodes in order, or those of the domains with the fewest group members.

The first node in order that fits, with the smallest possible number of group members near it, is the best. A
search that would take too long raises TooFarError, without a result.
"""

from collections.abc import Callable, Collection
from itertools import islice

from persys.core.placement.anti_affinity import Tally
from persys.core.placement.arrays import LabelEncoding
from persys.core.placement.chunked_order import ChunkedOrder, Entry, TooFarError
from persys.core.placement.filters import crowded
from persys.core.placement.node_index import NodeIndex
from persys.core.placement.node_slot import NodeSlot
from persys.core.placement.ranking import Arrangement, Domain, Ranking
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import GroupProximity, strategy_of
from persys.core.placement.vector_search import eligible
from persys.model.placement import Strategy

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
    by_company = Arrangement(packs, rules.spread_over, rules.group)
    ranking = node_index.ranking_cache.kept(needs, by_company)
    if ranking is None:
        try:
            return _with_least_company(needs, node_index, proximity, packs=packs)
        except TooFarError:
            ranking = node_index.ranking_cache.earned(
                needs, by_company, eligible(needs, node_index).each
            )
            if ranking is None:
                raise
    return _in_company(needs, node_index, ranking, proximity)


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


def _in_company(
    needs: Requirements, node_index: NodeIndex, ranking: Ranking, proximity: GroupProximity
) -> NodeSlot | None:
    """With a ranking for the group: the first node of a domain is the best there."""

    def fits(slot: NodeSlot) -> bool:
        return crowded(slot, needs) is None

    def pick(part: ChunkedOrder, _: Level) -> Entry | None:
        return part.first(needs.resources, fits)

    return _rarest_first(ranking, pick, node_index, proximity)


def _with_least_company(
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
    lowest, alike = _lowest(tally, ranking.domains())
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
        return _first_alone(part, needs, proximity, level + beyond)

    return _rarest_first(ranking, pick, node_index, proximity)


def _first_alone(
    part: ChunkedOrder, needs: Requirements, proximity: GroupProximity, least: Level
) -> Entry | None:
    """The first node with the fewest group members nearby; TooFarError if only other nodes fit."""
    others = False

    def alone(slot: NodeSlot) -> bool:
        nonlocal others
        if crowded(slot, needs) is not None:
            return False
        others = True
        return proximity.of(slot) == least

    found = part.first(needs.resources, alone)
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


def _lowest(tally: Tally, domains: Collection[Domain]) -> tuple[int, int]:
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
