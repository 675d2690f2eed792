"""The score of a node: several parts, of which the first difference decides; lower is better.

First the distance to other members of the group, by label and then by node; then the utilisation, lowest
first for spread or highest first for binpack; then the number of workloads and the id, so that no tie is
left.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persys.core.placement.node_index import Columns
from persys.core.placement.node_slot import Row
from persys.core.placement.ranking import Domain
from persys.core.placement.requirements import Needs
from persys.model.ids import NodeId
from persys.model.placement import Strategy

Score = tuple[tuple[int, ...], float, int, NodeId]


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    value: float
    detail: str


class Company:
    """The number of group members near a node: in its domain of each spread label, and on the node."""

    __slots__ = ("_group", "tallies")

    def __init__(self, needs: Needs, columns: Columns) -> None:
        rules = needs.rules
        self._group = rules.group
        self.tallies = [(key, columns.groups.tally(rules.group, key)) for key in rules.spread_over]

    def of(self, row: Row) -> tuple[int, ...]:
        if not self._group:
            return ()
        here = row.members.get(self._group, 0)
        if not self.tallies:
            return (here,)
        labels = row.labels
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


def score(row: Row, needs: Needs, columns: Columns, company: Company) -> Score:
    """The parts as one comparable value; the id is last."""
    return company.of(row), fill(row, needs, columns), row.count, row.node_id


def fill(row: Row, needs: Needs, columns: Columns) -> float:
    full = row.rank[0]
    return 1 - full if strategy_of(needs, columns) is Strategy.BINPACK else full


def strategy_of(needs: Needs, columns: Columns) -> Strategy:
    return needs.rules.strategy or columns.strategy


def score_parts(row: Row, needs: Needs, columns: Columns, company: Company) -> list[Part]:
    """The same parts with names, for users, without the id that breaks ties."""
    rules = needs.rules
    near = company.of(row)
    parts = []
    for key, count in zip(rules.spread_over, near, strict=False):
        value = row.labels.get(key)
        where = f"{key} = {value}" if value is not None else f"no {key}"
        parts.append(
            Part(f"group in {key}", count, f"{count} of group {rules.group} where {where}")
        )
    if rules.group:
        parts.append(Part("group on node", near[-1], f"{near[-1]} of group {rules.group} here"))
    packs = strategy_of(needs, columns) is Strategy.BINPACK
    name = "free capacity" if packs else "utilisation"
    parts.append(Part(name, fill(row, needs, columns), f"{row.rank[0]:.0%} reserved"))
    parts.append(Part("workloads", row.count, f"workloads: {row.count}"))
    return parts
