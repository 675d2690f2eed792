"""Cache of rankings.

Each ranking adds a small cost to every reservation, and building it costs as much as dozens of searches. So
one is built only for requirements that are requested repeatedly.
"""

from persys.core.placement.needs import Needs
from persys.core.placement.order import Order
from persys.core.placement.ranking import Arrangement, Ranking, Rows
from persys.model.ids import NodeId
from persys.model.placement import Constraint

KEPT_MAX = 32
COUNTED_MAX = 1024
WORTH_KEEPING = 8  # requests

# Equal for requirements with the same eligible nodes in the same order.
_Kind = tuple[frozenset[str], tuple[Constraint, ...], tuple[str, ...], Arrangement]


class Rankings:
    def __init__(self, rows: Rows, order: Order) -> None:
        self._rows, self._order = rows, order
        self._kept: dict[_Kind, Ranking] = {}
        self._groups: set[str] = set()  # of those kept
        self._asked: dict[_Kind, int] = {}

    def move(self, node_id: NodeId) -> None:
        """The reservations of the node changed."""
        for ranking in self._kept.values():
            part = ranking.part_of.get(node_id)
            if part is not None:
                part.moved.add(node_id)

    def alter(self, node_id: NodeId) -> None:
        """The attributes of the node changed."""
        for ranking in self._kept.values():
            ranking.altered.add(node_id)

    def kept(self, needs: Needs, by: Arrangement) -> Ranking | None:
        if by.group not in self._groups:
            return None
        kind = _kind(needs, by)
        found = self._kept.pop(kind, None)
        if found is not None:
            self._kept[kind] = found  # the least recently used is first
        return found

    def earned(self, needs: Needs, by: Arrangement, could: bytes) -> Ranking | None:
        """Like `kept`, but builds a missing ranking when it has been requested often enough."""
        found = self.kept(needs, by)
        if found is None and self._is_worth_it(kind := _kind(needs, by)):
            found = self._kept[kind] = Ranking(needs, by, self._rows, self._order, could=could)
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._groups = {kept.group for *_, kept in self._kept}
        return found

    def _is_worth_it(self, kind: _Kind) -> bool:
        by = kind[-1]
        if by.over and not by.group and len(self._kept) < KEPT_MAX:
            return True  # few labels are used for spreading, and by many groups
        asked = self._asked.pop(kind, 0) + 1
        if asked < WORTH_KEEPING:
            self._asked[kind] = asked
            if len(self._asked) > COUNTED_MAX:
                del self._asked[next(iter(self._asked))]
        return asked >= WORTH_KEEPING


def _kind(needs: Needs, by: Arrangement) -> _Kind:
    rules = needs.rules
    return needs.traits, rules.constraints, rules.tolerations, by
