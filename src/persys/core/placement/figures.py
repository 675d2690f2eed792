"""The free capacity of each node in arrays by position, for the search through all nodes."""

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.row import Row
from persys.model.resources import Resources


class Figures:
    def __init__(self, size: int) -> None:
        self.cpu: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.memory: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.disk: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.full: NDArray[np.float64] = np.zeros(size, dtype=np.float64)
        self.count: NDArray[np.int64] = np.zeros(size, dtype=np.int64)
        self.open: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)

    def copy(self) -> "Figures":
        twin = Figures(0)
        twin.cpu, twin.memory, twin.disk = self.cpu.copy(), self.memory.copy(), self.disk.copy()
        twin.full, twin.count, twin.open = self.full.copy(), self.count.copy(), self.open.copy()
        return twin

    def put(self, row: Row) -> None:
        at = row.position
        self.cpu[at] = row.free.cpu_millicores
        self.memory[at] = row.free.memory_mb
        self.disk[at] = row.free.disk_gb
        self.full[at] = row.rank[0]
        self.count[at] = row.count
        self.open[at] = not row.closed

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
