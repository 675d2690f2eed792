"""The eligible nodes for one kind of requirements, per domain and in placement order.

A node may change many times between two searches, so changes are only marked, and applied before the next
search.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from persys.core.placement.chunked_order import ChunkedOrder, Entry
from persys.core.placement.filters import unfit
from persys.core.placement.node_slot import NodeSlot, Order
from persys.core.placement.requirements import Requirements
from persys.model.ids import NodeId
from persys.model.placement import Constraint

MOVED_MANY = 64  # changed nodes of a part; beyond that a new sort may cost less

Rows = Mapping[NodeId, NodeSlot]
Domain = tuple[str | None, ...]  # the values of labels (None: missing)


class Arrangement(NamedTuple):
    """Order by utilisation, per domain; nodes with the fewest members of a group ("": none) first."""

    packs: bool
    over: tuple[str, ...] = ()
    group: str = ""


class Ranking:
    def __init__(
        self, needs: Requirements, by: Arrangement, slots: Rows, order: Order, *, could: bytes
    ) -> None:
        """`could`: by position, whether the node could run it if it were empty and open."""
        self.altered: set[NodeId] = set()  # nodes whose attributes changed
        self.part_of: dict[
            NodeId, ChunkedOrder
        ] = {}  # each marks its nodes whose reservations changed
        self._needs, self._by = needs, by
        self._rows = slots
        self._entries: dict[NodeId, Entry] = {}
        self._parts: dict[Domain, ChunkedOrder] = {}
        found: dict[Domain, list[NodeSlot]] = {}
        # All open nodes; already ordered, or nearly so.
        taken = [slot for *_, node_id in order.ranks if could[(slot := slots[node_id]).position]]
        for slot, domain in zip(taken, map(self._domain, taken), strict=True):
            if domain not in found:
                found[domain] = []
            found[domain].append(slot)
        for domain, members in found.items():
            entries = sorted(map(self._entry, members))
            part = self._parts[domain] = ChunkedOrder(entries, slots)
            nodes = [entry[3] for entry in entries]
            self._entries.update(zip(nodes, entries, strict=True))
            self.part_of.update(dict.fromkeys(nodes, part))

    def domains(self) -> Collection[Domain]:
        """Domains with a node; may include some that have become empty."""
        for node_id in self.altered:
            self._alter(node_id)
        self.altered.clear()
        return self._parts.keys()

    def part(self, domain: Domain) -> ChunkedOrder:
        """The current order of one of `domains`."""
        part = self._parts[domain]
        if part.moved:
            self._refresh(part)
        return part

    def _refresh(self, part: ChunkedOrder) -> None:
        slots, entries, moved = self._rows, self._entries, part.moved
        if len(moved) > MOVED_MANY and 4 * len(moved) > len(part):
            for node_id in moved:
                entries[node_id] = self._entry(slots[node_id])
            part.fill(sorted([entries[entry[3]] for entry in part]))
        else:
            for node_id in moved:
                slot = slots[node_id]
                part.discard(entries[node_id])
                entry = entries[node_id] = self._entry(slot)
                part.add(entry, slot.free)
        moved.clear()

    def _alter(self, node_id: NodeId) -> None:
        old = self._entries.pop(node_id, None)
        if old is not None:
            part = self.part_of.pop(node_id)
            part.discard(old)
            part.moved.discard(node_id)
        slot = self._rows.get(node_id)
        if slot is None or unfit(slot, self._needs) is not None:
            return
        domain, entry = self._domain(slot), self._entry(slot)
        if domain in self._parts:
            self._parts[domain].add(entry, slot.free)
        else:
            self._parts[domain] = ChunkedOrder([entry], self._rows)
        self._entries[node_id], self.part_of[node_id] = entry, self._parts[domain]

    def _domain(self, slot: NodeSlot) -> Domain:
        over, labels = self._by.over, slot.labels
        if len(over) == 1:  # the usual case
            return (labels.get(over[0]),)
        return tuple(labels.get(key) for key in over)

    def _entry(self, slot: NodeSlot) -> Entry:
        packs, _, group = self._by
        full, count, node_id = slot.rank
        return slot.members.get(group, 0), 1 - full if packs else full, count, node_id


KEPT_MAX = 32
COUNTED_MAX = 1024
WORTH_KEEPING = 8  # requests

# Equal for requirements with the same eligible nodes in the same order.
_Kind = tuple[frozenset[str], tuple[Constraint, ...], tuple[str, ...], Arrangement]


class RankingCache:
    def __init__(self, slots: Rows, order: Order) -> None:
        self._rows, self._order = slots, order
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

    def kept(self, needs: Requirements, by: Arrangement) -> Ranking | None:
        if by.group not in self._groups:
            return None
        kind = _kind(needs, by)
        found = self._kept.pop(kind, None)
        if found is not None:
            self._kept[kind] = found  # the least recently used is first
        return found

    def earned(self, needs: Requirements, by: Arrangement, could: bytes) -> Ranking | None:
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


def _kind(needs: Requirements, by: Arrangement) -> _Kind:
    rules = needs.rules
    return needs.traits, rules.constraints, rules.tolerations, by
