"""The open nodes in order of rank: all of them, and those of each domain of a label.

The best fit is nearly always among the first few, so most choices look at no more than those.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from persys.core.placement.row import Rank, Row

# Each label that is kept costs a little with every reservation.
LABELS_MAX = 8

Domains = dict[str | None, list[Rank]]  # value of a label (None: without it): its nodes, in order


class Order:
    def __init__(self) -> None:
        self.ranks: list[Rank] = []
        self._domains: dict[str, Domains] = {}

    def copy(self) -> "Order":
        twin = Order()
        twin.ranks = self.ranks.copy()
        return twin

    def add(self, row: Row) -> None:
        if row.closed:
            return
        insort(self.ranks, row.rank)
        for key, domains in self._domains.items():
            insort(domains.setdefault(row.labels.get(key), []), row.rank)

    def discard(self, row: Row) -> None:
        """Call it before anything about the row changes."""
        if row.closed:
            return
        del self.ranks[bisect_left(self.ranks, row.rank)]
        for key, domains in self._domains.items():
            value = row.labels.get(key)
            ranks = domains[value]
            del ranks[bisect_left(ranks, row.rank)]
            if not ranks:
                del domains[value]

    def domains(self, key: str, rows: Iterable[Row]) -> Domains:
        """By value of a label. Kept up to date from the first time that it is asked for."""
        found = self._domains.get(key)
        if found is None:
            if len(self._domains) >= LABELS_MAX:
                del self._domains[next(iter(self._domains))]  # the one kept the longest
            found = self._domains[key] = {}
            for row in rows:
                if not row.closed:
                    found.setdefault(row.labels.get(key), []).append(row.rank)
            for ranks in found.values():
                ranks.sort()
        return found
