"""The nodes that could take needs of one kind, in the order in which it would take them, domain by domain.

What a node holds and what it is may change a hundred times between two walks, so it is only noted that they
did, and looked at before the next walk.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from persys.core.placement.filters import unfit
from persys.core.placement.needs import Needs
from persys.core.placement.order import Order
from persys.core.placement.row import Row
from persys.core.placement.runs import Entry, Runs
from persys.model.ids import NodeId

MOVED_MANY = 64  # nodes of a part; beyond these it may cost less to sort it anew

Rows = Mapping[NodeId, Row]
Domain = tuple[str | None, ...]  # the values of labels (None: without it)


class Arrangement(NamedTuple):
    """The fullest first or last, apart by labels, and those with the fewest of a group ("": none) first."""

    packs: bool
    over: tuple[str, ...] = ()
    group: str = ""


class Ranking:
    def __init__(
        self, needs: Needs, by: Arrangement, rows: Rows, order: Order, *, could: bytes
    ) -> None:
        """`could`: by position, whether the node could take it if it were empty and open."""
        self.altered: set[NodeId] = set()  # are something else since the last look
        self.part_of: dict[NodeId, Runs] = {}  # each notes which of its nodes hold something else
        self._needs, self._by = needs, by
        self._rows = rows
        self._entries: dict[NodeId, Entry] = {}
        self._parts: dict[Domain, Runs] = {}
        found: dict[Domain, list[Row]] = {}
        # All that are open; in order already, or nearly so.
        taken = [row for *_, node_id in order.ranks if could[(row := rows[node_id]).position]]
        for row, domain in zip(taken, map(self._domain, taken), strict=True):
            if domain not in found:
                found[domain] = []
            found[domain].append(row)
        for domain, members in found.items():
            entries = sorted(map(self._entry, members))
            part = self._parts[domain] = Runs(entries, rows)
            nodes = [entry[3] for entry in entries]
            self._entries.update(zip(nodes, entries, strict=True))
            self.part_of.update(dict.fromkeys(nodes, part))

    def domains(self) -> Collection[Domain]:
        """Those in which there is a node, and perhaps some in which there was one."""
        for node_id in self.altered:
            self._alter(node_id)
        self.altered.clear()
        return self._parts.keys()

    def part(self, domain: Domain) -> Runs:
        """One of `domains`, as it is now."""
        part = self._parts[domain]
        if part.moved:
            self._refresh(part)
        return part

    def _refresh(self, part: Runs) -> None:
        rows, entries, moved = self._rows, self._entries, part.moved
        if len(moved) > MOVED_MANY and 4 * len(moved) > len(part):
            for node_id in moved:
                entries[node_id] = self._entry(rows[node_id])
            part.fill(sorted([entries[entry[3]] for entry in part]))
        else:
            for node_id in moved:
                row = rows[node_id]
                part.discard(entries[node_id])
                entry = entries[node_id] = self._entry(row)
                part.add(entry, row.free)
        moved.clear()

    def _alter(self, node_id: NodeId) -> None:
        old = self._entries.pop(node_id, None)
        if old is not None:
            part = self.part_of.pop(node_id)
            part.discard(old)
            part.moved.discard(node_id)
        row = self._rows.get(node_id)
        if row is None or unfit(row, self._needs) is not None:
            return
        domain, entry = self._domain(row), self._entry(row)
        if domain in self._parts:
            self._parts[domain].add(entry, row.free)
        else:
            self._parts[domain] = Runs([entry], self._rows)
        self._entries[node_id], self.part_of[node_id] = entry, self._parts[domain]

    def _domain(self, row: Row) -> Domain:
        over, labels = self._by.over, row.labels
        if len(over) == 1:  # as nearly always
            return (labels.get(over[0]),)
        return tuple(labels.get(key) for key in over)

    def _entry(self, row: Row) -> Entry:
        packs, _, group = self._by
        full, count, node_id = row.rank
        return row.members.get(group, 0), 1 - full if packs else full, count, node_id
