"""The free room of every node, kept up to date with each reservation.

Nodes stand in one list ordered by how full they are, so that the best fit is nearly always among the first
few; the same figures also stand in numpy columns for the rare search through all of them. Reservations are
kept by workload and node, so that taking or giving back the same one twice changes nothing.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.groups import Groups
from persys.core.placement.row import Rank, Row, fullness
from persys.model.assignment import HostPort
from persys.model.ids import NodeId, WorkloadId
from persys.model.resources import Resources
from persys.model.rules import Strategy

TRAIT_BITS = 63


@dataclass(frozen=True, slots=True)
class Hold:
    resources: Resources
    host_ports: frozenset[HostPort]
    group: str = ""
    apart: bool = False


class Columns:
    def __init__(self, strategy: Strategy = Strategy.SPREAD) -> None:
        self.strategy = strategy
        self.groups = Groups()
        self.rows: dict[NodeId, Row] = {}
        self.tainted: set[NodeId] = set()
        self._by_position: list[Row | None] = []
        self._order: list[Rank] = []
        self._holds: dict[NodeId, dict[WorkloadId, Hold]] = {}
        self._vacant: list[int] = []
        self._trait_bits: dict[str, int] = {}
        self.free_cpu: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self.free_memory: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self.free_disk: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self.full: NDArray[np.float64] = np.zeros(64, dtype=np.float64)
        self.traits: NDArray[np.int64] = np.zeros(64, dtype=np.int64)
        self.open: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)

    def put_node(
        self,
        node_id: NodeId,
        *,
        allocatable: Resources,
        traits: frozenset[str],
        closed: str = "",
        labels: Mapping[str, str] | None = None,
        taints: frozenset[str] = frozenset(),
    ) -> None:
        """Add a node or replace what is known of it. Its reservations stay."""
        row = self.rows.get(node_id)
        if row is None:
            row = Row(node_id, self._take_position(), allocatable, traits, closed, allocatable)
            row.labels = labels or {}
            self.rows[node_id] = row
            self._by_position[row.position] = row
        else:
            self._unrank(row)
            row.free += allocatable - row.allocatable
            row.allocatable, row.traits, row.closed = allocatable, traits, closed
            self.groups.relabel(row, labels or {})
        row.taints = taints
        (self.tainted.add if taints else self.tainted.discard)(node_id)
        for hold in () if row.count else self._holds.get(node_id, {}).values():
            self._count(row, hold, sign=1)
        self._rank(row)

    def remove_node(self, node_id: NodeId) -> None:
        row = self.rows.pop(node_id, None)
        if row is None:
            return
        self._unrank(row)
        self.tainted.discard(node_id)
        for hold in self._holds.get(node_id, {}).values():
            self._count(row, hold, sign=-1)
        self._by_position[row.position] = None
        self.open[row.position] = False
        self._vacant.append(row.position)

    def close(self, node_id: NodeId, why: str) -> None:
        """Give this node nothing new (`why` not empty), or let it take work again."""
        row = self.rows[node_id]
        row.closed = why
        self.open[row.position] = not why

    def hold(
        self,
        workload_id: WorkloadId,
        node_id: NodeId,
        resources: Resources,
        host_ports: frozenset[HostPort],
        *,
        group: str = "",
        apart: bool = False,
    ) -> None:
        """Reserve, replacing what this workload had reserved on this node."""
        self.give_back(workload_id, node_id)
        hold = Hold(resources, host_ports, group, apart)
        self._holds.setdefault(node_id, {})[workload_id] = hold
        if row := self.rows.get(node_id):
            self._unrank(row)
            self._count(row, hold, sign=1)
            self._rank(row)

    def give_back(self, workload_id: WorkloadId, node_id: NodeId) -> None:
        hold = self._holds.get(node_id, {}).pop(workload_id, None)
        row = self.rows.get(node_id)
        if hold is not None and row is not None:
            self._unrank(row)
            self._count(row, hold, sign=-1)
            self._rank(row)

    def give_back_all(self, node_id: NodeId) -> None:
        for workload_id in list(self._holds.get(node_id, {})):
            self.give_back(workload_id, node_id)

    def held(self, workload_id: WorkloadId, node_id: NodeId) -> Hold | None:
        return self._holds.get(node_id, {}).get(workload_id)

    def holders(self, node_id: NodeId) -> Mapping[WorkloadId, Hold]:
        return self._holds.get(node_id, {})

    def copy(self) -> "Columns":
        """The same room to try things out in: what is held in the one is not held in the other."""
        twin = Columns(self.strategy)
        twin.rows = {node_id: row.copy() for node_id, row in self.rows.items()}
        twin.groups = self.groups.copy(twin.rows)
        twin.tainted = self.tainted.copy()
        twin._by_position = [row and twin.rows[row.node_id] for row in self._by_position]
        twin._order = self._order.copy()
        twin._holds = {node_id: holds.copy() for node_id, holds in self._holds.items()}
        twin._vacant = self._vacant.copy()
        twin._trait_bits = self._trait_bits.copy()
        twin.free_cpu = self.free_cpu.copy()
        twin.free_memory = self.free_memory.copy()
        twin.free_disk = self.free_disk.copy()
        twin.full = self.full.copy()
        twin.traits = self.traits.copy()
        twin.open = self.open.copy()
        return twin

    def members_in(self, group: str, key: str, value: str | None) -> int:
        """How many of the group are held by nodes with this value of a label; None: without the label."""
        return self.groups.tally(group, key).get(value, 0)

    def in_order(self) -> Iterator[Row]:
        """Nodes, emptiest first."""
        return (self.rows[node_id] for _, _, node_id in self._order)

    def at(self, position: int) -> Row:
        row = self._by_position[position]
        assert row is not None
        return row

    def bits_of(self, traits: frozenset[str]) -> int:
        """Traits as one number; a trait that was never seen gets its own bit."""
        bits = 0
        for trait in traits:
            bits |= self._trait_bits.setdefault(
                trait, 1 << min(len(self._trait_bits), TRAIT_BITS - 1)
            )
        return bits

    @property
    def shares_bits(self) -> bool:
        """More traits than bits: the column of traits says yes too often."""
        return len(self._trait_bits) > TRAIT_BITS

    def _count(self, row: Row, hold: Hold, *, sign: int) -> None:
        row.free = row.free - hold.resources if sign > 0 else row.free + hold.resources
        row.count += sign
        for port in hold.host_ports:
            row.ports[port] = row.ports.get(port, 0) + sign
            if not row.ports[port]:
                del row.ports[port]
        if hold.group:
            self.groups.count(row, hold.group, apart=hold.apart, sign=sign)

    def _rank(self, row: Row) -> None:
        row.rank = (fullness(row), row.count, row.node_id)
        insort(self._order, row.rank)
        at = row.position
        self.free_cpu[at] = row.free.cpu_millicores
        self.free_memory[at] = row.free.memory_mb
        self.free_disk[at] = row.free.disk_gb
        self.full[at] = row.rank[0]
        self.traits[at] = self.bits_of(row.traits)
        self.open[at] = not row.closed

    def _unrank(self, row: Row) -> None:
        del self._order[bisect_left(self._order, row.rank)]

    def _take_position(self) -> int:
        if self._vacant:
            return self._vacant.pop()
        position = len(self._by_position)
        self._by_position.append(None)
        if position >= len(self.open):
            self._grow(2 * position)
        return position

    def _grow(self, size: int) -> None:
        self.free_cpu = np.resize(self.free_cpu, size)
        self.free_memory = np.resize(self.free_memory, size)
        self.free_disk = np.resize(self.free_disk, size)
        self.full = np.resize(self.full, size)
        self.traits = np.resize(self.traits, size)
        # Resizing repeats old figures into the new room; only what is open is ever looked at.
        self.open = np.concatenate([self.open, np.zeros(size - len(self.open), dtype=np.bool_)])
