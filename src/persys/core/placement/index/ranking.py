"""Rankings: the eligible nodes for one kind of requirements, per domain and in placement order.

`ChunkedOrder` has the nodes of one domain in short chunks that each know an upper bound of the free capacity
of their nodes. A chunk without enough capacity is skipped with one comparison. The bound is raised on insert
and recomputed lazily after a failed scan, so it is never too low.

A node may change many times between two searches, so a `Ranking` only marks changes, and applies them before
the next search. Each ranking adds a small cost to every reservation, and building it costs as much as dozens
of searches: `RankingCache` builds one only for requirements that are requested repeatedly.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from persys.core.placement.filters import unfit
from persys.core.placement.index.node_slot import NodeOrder, NodeSlot
from persys.core.placement.requirements import Requirements
from persys.model.ids import NodeId
from persys.model.placement import Constraint, Resources

RUN_MAX = 64
LOOKS_MAX = 512  # scanned nodes beyond which a search of all nodes costs less
CHECKED_MAX = 32  # of these, nodes with enough capacity that are rejected

# Number of group members on the node, utilisation score, number of workloads, id: lower is better.
Entry = tuple[int, float, int, NodeId]
Accepts = Callable[[NodeSlot], bool]


class TooFarError(Exception):
    """A search of all nodes costs less than scanning further."""


class _Run:
    __slots__ = ("cpu", "disk", "entries", "loose", "memory")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.cpu = self.memory = self.disk = sys.maxsize
        self.loose = True  # the bound may be too high

    def raise_to(self, free: Resources) -> None:
        if free.cpu_millicores > self.cpu:
            self.cpu = free.cpu_millicores
        if free.memory_mb > self.memory:
            self.memory = free.memory_mb
        if free.disk_gb > self.disk:
            self.disk = free.disk_gb

    def tighten(self, slots: Mapping[NodeId, NodeSlot]) -> None:
        self.cpu = self.memory = self.disk = 0
        for entry in self.entries:
            self.raise_to(slots[entry[3]].free)
        self.loose = False


class ChunkedOrder:
    def __init__(self, entries: list[Entry], slots: Mapping[NodeId, NodeSlot]) -> None:
        self.moved: set[NodeId] = set()  # nodes with outdated entries
        self._rows = slots
        self.fill(entries)

    def fill(self, entries: list[Entry]) -> None:
        """`entries` are ordered and not empty."""
        half = RUN_MAX // 2
        self._runs = [_Run(entries[at : at + half]) for at in range(0, len(entries), half)]
        # The lowest entry of each run; entries below all of them go into the first run.
        self._bounds = [run.entries[0] for run in self._runs]

    def __len__(self) -> int:
        return sum([len(run.entries) for run in self._runs])

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(run.entries for run in self._runs)

    def add(self, entry: Entry, free: Resources) -> None:
        at = bisect_right(self._bounds, entry, 1) - 1
        run = self._runs[at]
        insort(run.entries, entry)
        run.raise_to(free)
        if len(run.entries) > RUN_MAX:
            self._split(at)

    def discard(self, entry: Entry) -> None:
        at = bisect_right(self._bounds, entry, 1) - 1
        run = self._runs[at]
        del run.entries[bisect_left(run.entries, entry)]
        run.loose = True
        if not run.entries and len(self._runs) > 1:
            del self._runs[at], self._bounds[at]

    def first(self, needed: Resources, accepts: Accepts) -> Entry | None:
        """The first node with enough capacity that `accepts` accepts; TooFarError if it takes too long."""
        cpu, memory, disk = needed.cpu_millicores, needed.memory_mb, needed.disk_gb
        slots = self._rows
        looks = checked = 0
        for run in self._runs:
            if run.cpu < cpu or run.memory < memory or run.disk < disk:
                continue
            for entry in run.entries:
                slot = slots[entry[3]]
                free = slot.free
                if free.cpu_millicores >= cpu and free.memory_mb >= memory and free.disk_gb >= disk:
                    if accepts(slot):
                        return entry
                    checked += 1
            if run.loose:
                run.tighten(slots)
            looks += len(run.entries)
            if looks > LOOKS_MAX or checked > CHECKED_MAX:
                raise TooFarError
        return None

    def _split(self, at: int) -> None:
        run = self._runs[at]
        half = len(run.entries) // 2
        upper = _Run(run.entries[half:])
        del run.entries[half:]
        run.loose = True
        self._runs.insert(at + 1, upper)
        self._bounds.insert(at + 1, upper.entries[0])


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
        self, needs: Requirements, by: Arrangement, slots: Rows, order: NodeOrder, *, could: bytes
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
        if slot is None or slot.tier or unfit(slot, self._needs) is not None:
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
    def __init__(self, slots: Rows, order: NodeOrder) -> None:
        self._rows, self._order = slots, order
        self._kept: dict[_Kind, Ranking] = {}
        self._groups: set[str] = set()  # of those kept
        self._requests: dict[_Kind, int] = {}

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
        requests = self._requests.pop(kind, 0) + 1
        if requests < WORTH_KEEPING:
            self._requests[kind] = requests
            if len(self._requests) > COUNTED_MAX:
                del self._requests[next(iter(self._requests))]
        return requests >= WORTH_KEEPING


def _kind(needs: Requirements, by: Arrangement) -> _Kind:
    rules = needs.rules
    return needs.traits, rules.constraints, rules.tolerations, by
