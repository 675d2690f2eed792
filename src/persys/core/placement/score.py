"""The score of a node: several parts, of which the first difference decides; lower is better.

First the distance to other members of the group, by label and then by node; then the utilisation, lowest
first for spread or highest first for binpack; then the number of workloads and the id, so that no tie is
left.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.index.ranking import Domain
from persys.core.placement.requirements import Requirements
from persys.model.ids import NodeId
from persys.model.placement import Strategy

Score = tuple[tuple[int, ...], float, int, NodeId]


@dataclass(frozen=True, slots=True)
class ScorePart:
    name: str
    value: float
    detail: str


class GroupProximity:
    """The number of group members near a node: in its domain of each spread label, and on the node."""

    __slots__ = ("_group", "tallies")

    def __init__(self, needs: Requirements, node_index: NodeIndex) -> None:
        rules = needs.rules
        self._group = rules.group
        self.tallies = [
            (key, node_index.groups.tally(rules.group, key)) for key in rules.spread_over
        ]

    def of(self, slot: NodeSlot) -> tuple[int, ...]:
        if not self._group:
            return ()
        here = slot.members.get(self._group, 0)
        if not self.tallies:
            return (here,)
        labels = slot.labels
        if len(self.tallies) == 1:  # the usual case
            key, tally = self.tallies[0]
            return tally.get(labels.get(key), 0), here
        return (*[tally.get(labels.get(key), 0) for key, tally in self.tallies], here)

    def rarest(self, domains: Iterable[Domain]) -> Iterator[tuple[tuple[int, ...], list[Domain]]]:
        """The domains grouped by their number of group members, fewest first.

        A domain has the values of all spread labels, or of the first one.
        """
        alike: dict[tuple[int, ...], list[Domain]] = {}
        if len(self.tallies) == 1:
            tally = self.tallies[0][1]
            for domain in domains:
                alike.setdefault((tally.get(domain[0], 0),), []).append(domain)
        else:
            tallies = [tally for _, tally in self.tallies]
            for domain in domains:
                pairs = zip(tallies, domain, strict=False)
                level = tuple([tally.get(value, 0) for tally, value in pairs])
                alike.setdefault(level, []).append(domain)
        for level in sorted(alike):
            yield level, alike[level]


def score(
    slot: NodeSlot, needs: Requirements, node_index: NodeIndex, proximity: GroupProximity
) -> Score:
    """The parts as one comparable value; the id is last."""
    return proximity.of(slot), fill(slot, needs, node_index), slot.count, slot.node_id


def beyond_score(
    slot: NodeSlot, needs: Requirements, node_index: NodeIndex, proximity: GroupProximity
) -> tuple[int, float, Score]:
    """For a node of a tier above 0: the lowest tier first, then the cheapest."""
    return slot.tier, slot.price, score(slot, needs, node_index, proximity)


def price_of(slot: NodeSlot) -> str:
    return f"{slot.price:g} per core and hour" if slot.price else "no price"


def fill(slot: NodeSlot, needs: Requirements, node_index: NodeIndex) -> float:
    full = slot.rank[0]
    return 1 - full if strategy_of(needs, node_index) is Strategy.BINPACK else full


def strategy_of(needs: Requirements, node_index: NodeIndex) -> Strategy:
    return needs.rules.strategy or node_index.strategy


def score_parts(
    slot: NodeSlot, needs: Requirements, node_index: NodeIndex, proximity: GroupProximity
) -> list[ScorePart]:
    """The same parts with names, for users, without the id that breaks ties."""
    rules = needs.rules
    near = proximity.of(slot)
    parts = []
    if slot.tier:
        parts.append(ScorePart("tier", slot.tier, f"tier {slot.tier}"))
        parts.append(ScorePart("price", slot.price, price_of(slot)))
    for key, count in zip(rules.spread_over, near, strict=False):
        value = slot.labels.get(key)
        where = f"{key} = {value}" if value is not None else f"no {key}"
        parts.append(
            ScorePart(f"group in {key}", count, f"{count} of group {rules.group} where {where}")
        )
    if rules.group:
        parts.append(
            ScorePart("group on node", near[-1], f"{near[-1]} of group {rules.group} here")
        )
    packs = strategy_of(needs, node_index) is Strategy.BINPACK
    name = "free capacity" if packs else "utilisation"
    parts.append(ScorePart(name, fill(slot, needs, node_index), f"{slot.rank[0]:.0%} reserved"))
    parts.append(ScorePart("workloads", slot.count, f"workloads: {slot.count}"))
    return parts
