"""Nodes in the order in which they would be taken, in short runs that know the most any of theirs has left.

A run in which no node can have enough is passed at one look. The most is only ever too high: it rises with
whoever comes, and is found out anew when a run was looked through in vain.
"""

import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from persys.core.placement.row import Row
from persys.model.ids import NodeId
from persys.model.resources import Resources

RUN_MAX = 64
LOOKS_MAX = 512  # nodes that are looked at before a search of all costs less
JUDGED_MAX = 32  # of these, nodes that have enough left and yet do not do

# How many of the group are on the node, how good its fill, how many workloads, id: lower is better.
Entry = tuple[int, float, int, NodeId]
Judge = Callable[[Row], bool]


class TooFarError(Exception):
    """A search of all nodes costs less than to look any further."""


class _Run:
    __slots__ = ("cpu", "disk", "entries", "loose", "memory")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.cpu = self.memory = self.disk = sys.maxsize
        self.loose = True  # the most may be less

    def raise_to(self, free: Resources) -> None:
        if free.cpu_millicores > self.cpu:
            self.cpu = free.cpu_millicores
        if free.memory_mb > self.memory:
            self.memory = free.memory_mb
        if free.disk_gb > self.disk:
            self.disk = free.disk_gb

    def tighten(self, rows: Mapping[NodeId, Row]) -> None:
        self.cpu = self.memory = self.disk = 0
        for entry in self.entries:
            self.raise_to(rows[entry[3]].free)
        self.loose = False


class Runs:
    def __init__(self, entries: list[Entry], rows: Mapping[NodeId, Row]) -> None:
        self.moved: set[NodeId] = set()  # whose entries are no longer right
        self._rows = rows
        self.fill(entries)

    def fill(self, entries: list[Entry]) -> None:
        """`entries` are in order, and at least one."""
        half = RUN_MAX // 2
        self._runs = [_Run(entries[at : at + half]) for at in range(0, len(entries), half)]
        # No entry of a run is lower than this; the first run takes what is lower than all.
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
        """The first that has that much left and finds favour; TooFarError where it would take long."""
        cpu, memory, disk = needed.cpu_millicores, needed.memory_mb, needed.disk_gb
        rows = self._rows
        looks = judged = 0
        for run in self._runs:
            if run.cpu < cpu or run.memory < memory or run.disk < disk:
                continue
            for entry in run.entries:
                row = rows[entry[3]]
                free = row.free
                if free.cpu_millicores >= cpu and free.memory_mb >= memory and free.disk_gb >= disk:
                    if judge(row):
                        return entry
                    judged += 1
            if run.loose:
                run.tighten(rows)
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
