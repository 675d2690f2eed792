"""Nodes in placement order, in short chunks that each know an upper bound of the free capacity of their
nodes.

A chunk without enough capacity is skipped with one comparison. The bound is raised on insert and recomputed
lazily after a failed scan, so it is never too low.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from persys.core.placement.node_slot import NodeSlot
from persys.model.ids import NodeId
from persys.model.resources import Resources

RUN_MAX = 64
LOOKS_MAX = 512  # scanned nodes beyond which a search of all nodes costs less
JUDGED_MAX = 32  # of these, nodes with enough capacity that are rejected

# Number of group members on the node, utilisation score, number of workloads, id: lower is better.
Entry = tuple[int, float, int, NodeId]
Judge = Callable[[NodeSlot], bool]


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

    def first(self, needed: Resources, judge: Judge) -> Entry | None:
        """The first node with enough capacity that `judge` accepts; TooFarError if it takes too long."""
        cpu, memory, disk = needed.cpu_millicores, needed.memory_mb, needed.disk_gb
        slots = self._rows
        looks = judged = 0
        for run in self._runs:
            if run.cpu < cpu or run.memory < memory or run.disk < disk:
                continue
            for entry in run.entries:
                slot = slots[entry[3]]
                free = slot.free
                if free.cpu_millicores >= cpu and free.memory_mb >= memory and free.disk_gb >= disk:
                    if judge(slot):
                        return entry
                    judged += 1
            if run.loose:
                run.tighten(slots)
            looks += len(run.entries)
            if looks > LOOKS_MAX or judged > JUDGED_MAX:
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
