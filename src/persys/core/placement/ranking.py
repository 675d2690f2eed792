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

Rows = Mapping[NodeId, Row]
Domain = tuple[str | None, ...]  # the values of labels (None: without it)


class Arrangement(NamedTuple):
    """The fullest first or last, apart by labels, and those with the fewest of a group ("": none) first."""

    packs: bool
    over: tuple[str, ...] = ()
    group: str = ""


class Ranking:
    def __init__(self, needs: Needs, by: Arrangement, rows: Rows, order: Order) -> None:
        self.moved: set[NodeId] = set()  # hold something else since the last look
        self.altered: set[NodeId] = set()  # are something else
        self._parts: dict[Domain, Runs] = {}
        self._needs, self._by = needs, by
        self._rows, self._order = rows, order
        self._entries: dict[NodeId, Entry] = {}
        self._part_of: dict[NodeId, Runs] = {}
        self._look_at_all()

    def parts(self) -> Mapping[Domain, Runs]:
        if self.moved or self.altered:
            self._refresh()
        return self._parts

    def domains(self) -> Collection[Domain]:
        """Those in which there is a node, and perhaps some in which there was one."""
        if self.altered:
            self._refresh()
        return self._parts.keys()

    def _refresh(self) -> None:
        if 4 * (len(self.moved) + len(self.altered)) > len(self._rows):
            self._look_at_all()
            return
        for node_id in self.altered:
            self._alter(node_id)
        for node_id in self.moved:
            old = self._entries.get(node_id)
            if old is not None:
                row, part = self._rows[node_id], self._part_of[node_id]
                part.discard(old)
                new = self._entries[node_id] = self._entry(row)
                part.add(new, row.free)
        self.altered.clear()
        self.moved.clear()

    def _look_at_all(self) -> None:
        found: dict[Domain, list[Entry]] = {}
        for _, _, node_id in self._order.ranks:  # in order already, or nearly so
            row = self._rows[node_id]
            if unfit(row, self._needs) is None:
                domain = self._domain(row)
                if domain not in found:
                    found[domain] = []
                found[domain].append(self._entry(row))
        self._entries, self._part_of = {}, {}
        for domain, entries in found.items():
            entries.sort()
            part = self._parts[domain] = Runs(entries, self._rows)
            nodes = [entry[3] for entry in entries]
            self._entries.update(zip(nodes, entries, strict=True))
            self._part_of.update(dict.fromkeys(nodes, part))
        for domain in self._parts.keys() - found.keys():
            del self._parts[domain]
        self.altered.clear()
        self.moved.clear()

    def _alter(self, node_id: NodeId) -> None:
        old = self._entries.pop(node_id, None)
        if old is not None:
            self._part_of.pop(node_id).discard(old)
        row = self._rows.get(node_id)
        if row is None or unfit(row, self._needs) is not None:
            return
        domain, entry = self._domain(row), self._entry(row)
        part = self._parts.get(domain)
        if part is None:
            part = self._parts[domain] = Runs([entry], self._rows)
        else:
            part.add(entry, row.free)
        self._entries[node_id], self._part_of[node_id] = entry, part

    def _domain(self, row: Row) -> Domain:
        over, labels = self._by.over, row.labels
        if len(over) == 1:  # as nearly always
            return (labels.get(over[0]),)
        return tuple(labels.get(key) for key in over)

    def _entry(self, row: Row) -> Entry:
        packs, _, group = self._by
        full, count, node_id = row.rank
        return row.members.get(group, 0), 1 - full if packs else full, count, node_id
