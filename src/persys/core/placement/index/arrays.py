"""All nodes in arrays: amounts, and attributes encoded as small numbers.

Thousands of nodes have a handful of different values of a label, sets of traits or sets of taints, so a
condition on an attribute is evaluated once per value. Only clusters with many nodes import this module.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.index.node_slot import NodeSlot
from persys.model.ids import NodeId
from persys.model.placement import Resources


class NodeArrays:
    def __init__(self, size: int) -> None:
        self.cpu: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.memory: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.disk: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.full: NDArray[np.float64] = np.zeros(size, dtype=np.float64)
        self.count: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.open: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)

    def copy(self) -> "NodeArrays":
        twin = NodeArrays(0)
        twin.cpu, twin.memory, twin.disk = self.cpu.copy(), self.memory.copy(), self.disk.copy()
        twin.full, twin.count, twin.open = self.full.copy(), self.count.copy(), self.open.copy()
        return twin

    def put(self, slot: NodeSlot) -> None:
        at = slot.position
        self.cpu[at] = slot.free.cpu_millicores
        self.memory[at] = slot.free.memory_mb
        self.disk[at] = slot.free.disk_gb
        self.full[at] = slot.rank[0]
        self.count[at] = slot.count
        self.open[at] = slot.is_ranked

    def remove(self, position: int) -> None:
        self.open[position] = False

    def enough_for(self, needed: Resources) -> NDArray[np.bool_]:
        """By position, whether the node is open and has that much free."""
        enough: NDArray[np.bool_] = (
            self.open
            & (self.cpu >= needed.cpu_millicores)
            & (self.memory >= needed.memory_mb)
            & (self.disk >= needed.disk_gb)
        )
        return enough

    def grow(self, size: int) -> None:
        self.cpu = np.resize(self.cpu, size)
        self.memory = np.resize(self.memory, size)
        self.disk = np.resize(self.disk, size)
        self.full = np.resize(self.full, size)
        self.count = np.resize(self.count, size)
        # np.resize repeats old values in the new positions; only open positions are ever read.
        self.open = np.concatenate([self.open, np.zeros(size - len(self.open), dtype=np.bool_)])


LABELS_MAX = 64
SIZE_MIN = 64

ValueT = TypeVar("ValueT", bound=Hashable)

CONDITIONS_MAX = 256


class LabelEncoding(Generic[ValueT]):
    def __init__(self, size: int) -> None:
        self.codes: NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        self._code_of: dict[ValueT, int] = {}
        self._tables: dict[Hashable, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        """The number of distinct values so far."""
        return len(self._code_of)

    def copy(self) -> "LabelEncoding[ValueT]":
        twin: LabelEncoding[ValueT] = LabelEncoding(0)
        twin.codes, twin._code_of = self.codes.copy(), self._code_of.copy()
        return twin

    def grow(self, size: int) -> None:
        self.codes = np.resize(self.codes, size)

    def put(self, position: int, value: ValueT) -> None:
        self.codes[position] = self._code_of.setdefault(value, len(self._code_of))

    def put_all(self, values: Mapping[int, ValueT]) -> None:
        """By position."""
        code_of = self._code_of
        codes = [code_of.setdefault(value, len(code_of)) for value in values.values()]
        self.codes[list(values)] = codes

    def where(self, condition: Hashable, holds: Callable[[ValueT], bool]) -> NDArray[np.bool_]:
        """By position, whether `holds` is true. `condition` is its cache key."""
        table = self._tables.get(condition)
        if table is None or len(table) < len(self._code_of):
            if len(self._tables) >= CONDITIONS_MAX:
                self._tables.clear()
            table = np.fromiter(map(holds, self._code_of), dtype=np.bool_, count=len(self))
            self._tables[condition] = table
        return table[self.codes]

    def levels(self, counts: Mapping[ValueT, int]) -> NDArray[np.int64]:
        """By position, the count of the value there."""
        table = np.zeros(len(self), dtype=np.int64)
        for value, count in counts.items():
            table[self._code_of[value]] = count
        return table[self.codes]


@dataclass(frozen=True, slots=True)
class Eligible:
    """By position: as an array for all nodes, and as bytes for single lookups."""

    mask: NDArray[np.bool_]
    each: bytes


class AllNodes:
    """The arrays of a `NodeIndex`, by position of the node."""

    def __init__(self, size: int) -> None:
        size = max(size, SIZE_MIN)
        self.arrays = NodeArrays(size)
        self.traits: LabelEncoding[frozenset[str]] = LabelEncoding(size)
        self.taints: LabelEncoding[frozenset[str]] = LabelEncoding(size)
        self._labels: dict[str, LabelEncoding[str | None]] = {}

    def copy(self) -> "AllNodes":
        twin = AllNodes(0)
        twin.arrays = self.arrays.copy()
        twin.traits, twin.taints = self.traits.copy(), self.taints.copy()
        return twin

    def make_room_for(self, position: int) -> None:
        if position < len(self.arrays.open):
            return
        self.arrays.grow(2 * position)
        self.traits.grow(2 * position)
        self.taints.grow(2 * position)
        for codes in self._labels.values():
            codes.grow(2 * position)

    def code(self, slot: NodeSlot) -> None:
        """The attributes of the node changed."""
        self.traits.put(slot.position, slot.traits)
        self.taints.put(slot.position, slot.taints)
        for key, codes in self._labels.items():
            codes.put(slot.position, slot.labels.get(key))

    def labelled(self, key: str, slots: Mapping[NodeId, NodeSlot]) -> LabelEncoding[str | None]:
        """The values of one label. Updated from the first call on."""
        codes = self._labels.pop(key, None)
        # Values that no node has any more are dropped only by a rebuild.
        if codes is None or len(codes) > 2 * len(slots) + LABELS_MAX:
            if len(self._labels) >= LABELS_MAX:
                del self._labels[next(iter(self._labels))]  # the least recently used
            codes = LabelEncoding(len(self.arrays.open))
            codes.put_all({slot.position: slot.labels.get(key) for slot in slots.values()})
        self._labels[key] = codes
        return codes
