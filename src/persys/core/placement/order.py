"""The open nodes ordered by rank. The best fit is nearly always among the first few."""

from bisect import bisect_left, insort

from persys.core.placement.row import Rank, Row


class Order:
    def __init__(self) -> None:
        self.ranks: list[Rank] = []

    def copy(self) -> "Order":
        twin = Order()
        twin.ranks = self.ranks.copy()
        return twin

    def add(self, row: Row) -> None:
        if not row.closed:
            insort(self.ranks, row.rank)

    def discard(self, row: Row) -> None:
        """Call it before the row changes."""
        if not row.closed:
            del self.ranks[bisect_left(self.ranks, row.rank)]
