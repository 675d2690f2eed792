"""The queue of workloads that wait for capacity, grouped by equal requirements.

Free capacity on a node wakes only the workloads that could use it. Each group is checked once, and the
requirements of all groups are in arrays, so thousands of workloads that do not fit cost little. A workload
that waits for one node, such as a VM that has to grow, is indexed by that node.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import TYPE_CHECKING

from persys.core.placement.filters import reject
from persys.core.placement.index.node_slot import NodeSlot, PoolCapacity
from persys.core.placement.requirements import Requirements, is_exclusive
from persys.core.placement.tiers import placement_needs
from persys.core.reconcile.evacuate import must_leave
from persys.core.reconcile.situation import Situation
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources
from persys.model.workload import Desired

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NEVER = 2**63 - 1  # more than any node has: marks a vacant position
FEW = 64  # groups that are checked one by one; a small cluster does not import numpy

Line = dict[WorkloadId, None]


class RequirementGroups:
    def __init__(self) -> None:
        self._lines: dict[Requirements, Line] = {}
        self._places: dict[Requirements, int] = {}
        self._at: list[Requirements | None] = []
        self._free_positions: list[int] = []
        self._amounts: NDArray[np.int64] | None = None  # with more than a few groups

    def add(self, workload_id: WorkloadId, needs: Requirements) -> None:
        line = self._lines.get(needs)
        if line is None:
            line = self._lines[needs] = {}
            self._open(needs)
        line[workload_id] = None

    def discard(self, workload_id: WorkloadId, needs: Requirements) -> None:
        line = self._lines[needs]
        del line[workload_id]
        if not line:
            del self._lines[needs]
            self._close(needs)

    def that_may_fit(self, free: Resources) -> Iterator[tuple[Requirements, Line]]:
        """The groups whose amounts fit; their other requirements are not checked here."""
        if len(self._lines) <= FEW:
            for needs, line in self._lines.items():
                if needs.resources.fits_in(free):
                    yield needs, line
            return
        import numpy as np  # a slow import, needed only with many groups

        if self._amounts is None:
            self._amounts = _amounts_of(self._at)
        cpu, memory, disk = self._amounts
        enough = (cpu <= free.cpu_millicores) & (memory <= free.memory_mb) & (disk <= free.disk_gb)
        for place in np.flatnonzero(enough):
            found = self._at[int(place)]
            assert found is not None
            yield found, self._lines[found]

    def _open(self, needs: Requirements) -> None:
        if self._free_positions:
            place = self._free_positions.pop()
        else:
            place = len(self._at)
            self._at.append(None)
        self._at[place] = needs
        self._places[needs] = place
        if self._amounts is None:
            return
        if place >= self._amounts.shape[1]:
            self._amounts = None  # it is made again, larger
            return
        need = needs.resources
        self._amounts[:, place] = need.cpu_millicores, need.memory_mb, need.disk_gb

    def _close(self, needs: Requirements) -> None:
        place = self._places.pop(needs)
        self._at[place] = None
        if self._amounts is not None:
            self._amounts[:, place] = _NEVER
        self._free_positions.append(place)


def _amounts_of(groups: Sequence[Requirements | None]) -> "NDArray[np.int64]":
    """By position, with as many vacant ones."""
    import numpy as np  # a slow import, needed only with many groups

    amounts = np.full((3, 2 * len(groups)), _NEVER, dtype=np.int64)
    for place, needs in enumerate(groups):
        if needs is not None:
            need = needs.resources
            amounts[:, place] = need.cpu_millicores, need.memory_mb, need.disk_gb
    return amounts


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """What a workload waits for: capacity on any node, or a change of certain nodes.

    Capacity on a node with an old copy of it cannot be used until that copy is removed.
    """

    needs: Requirements
    own_nodes: frozenset[NodeId] = frozenset()
    anywhere: bool = True
    old_copies: frozenset[NodeId] = frozenset()


def pending_entry(situation: Situation, now: datetime) -> PendingEntry:
    """Its own node counts unless it must leave it; other nodes count unless it is bound to its node.

    A stopped workload is not placed on another node before it is started.

    Capacity on a node does not wake the workloads that leave it: otherwise each departure would re-evaluate
    hundreds of them.
    """
    leaves = must_leave(situation, now)
    own_nodes = {copy.node_id for copy in situation.copies if copy.may_run}
    if situation.assignment is not None and not leaves:
        own_nodes.add(situation.assignment.node_id)
    stays = is_exclusive(situation.workload) or situation.workload.desired is Desired.STOPPED
    kept = stays and bool(own_nodes) and not leaves
    return PendingEntry(
        placement_needs(situation, now),
        frozenset(own_nodes),
        anywhere=not kept,
        old_copies=frozenset(copy.node_id for copy in situation.copies if copy.being_removed),
    )


class PendingQueue:
    def __init__(self) -> None:
        self._waits: dict[WorkloadId, PendingEntry] = {}
        self._numbers: dict[WorkloadId, int] = {}
        self._next_number = 0
        self._lines = RequirementGroups()
        self._by_own_node: dict[NodeId, dict[WorkloadId, None]] = {}
        self._offered: dict[WorkloadId, set[NodeId]] = {}
        self._looked_at = 0

    def __contains__(self, workload_id: object) -> bool:
        return workload_id in self._waits

    def __len__(self) -> int:
        return len(self._waits)

    def __iter__(self) -> Iterator[WorkloadId]:
        """In queue order."""
        return iter(self._waits)

    def add(self, workload_id: WorkloadId, wait: PendingEntry) -> None:
        """A workload that already waits for the same keeps its position, also if it may use more tiers."""
        before = self._waits.get(workload_id)
        if before == wait:
            return
        number = self._next_number
        if before is not None and replace(before.needs, tiers=wait.needs.tiers) == wait.needs:
            number = self._numbers[workload_id]
        self.discard(workload_id)
        self._waits[workload_id] = wait
        self._numbers[workload_id] = number
        self._next_number += 1
        if wait.anywhere:
            self._lines.add(workload_id, wait.needs)
        for node_id in wait.own_nodes:
            self._by_own_node.setdefault(node_id, {})[workload_id] = None

    def discard(self, workload_id: WorkloadId) -> None:
        wait = self._waits.pop(workload_id, None)
        if wait is None:
            return
        del self._numbers[workload_id]
        if wait.anywhere:
            self._lines.discard(workload_id, wait.needs)
        for node_id in wait.own_nodes:
            del self._by_own_node[node_id][workload_id]
            if not self._by_own_node[node_id]:
                del self._by_own_node[node_id]

    def candidates_for(self, slot: NodeSlot) -> list[WorkloadId]:
        """Workloads to re-evaluate because this node has free capacity, in queue order, as many as fit.

        After each has been decided, `after_decision` returns the nodes whose capacity is still free.
        """
        named = [
            workload_id
            for workload_id in self.waiting_for(slot.node_id)
            if slot.node_id not in self._waits[workload_id].old_copies
        ]
        for workload_id in self._as_many_as_fit(slot):
            self._offered.setdefault(workload_id, set()).add(slot.node_id)
            named.append(workload_id)
        return named

    def waiting_for(self, node_id: NodeId) -> list[WorkloadId]:
        """Workloads that wait for a change of this node."""
        return list(self._by_own_node.get(node_id, ()))

    def after_decision(
        self, workload_id: WorkloadId, slots: dict[NodeId, NodeSlot]
    ) -> list[NodeId]:
        """The nodes to offer again, after the decision for an offered workload was stored."""
        offered = self._offered.pop(workload_id, None)
        if offered is None:
            return []
        wait = self._waits.get(workload_id)
        if wait is None:
            return sorted(offered)
        # It still waits. A node that fits and was not chosen would not be chosen by the next call either.
        return sorted(
            node_id
            for node_id in offered
            if node_id in slots and reject(slots[node_id], wait.needs) is not None
        )

    def next_batch(self, most: int) -> list[WorkloadId]:
        """The next few of the queue, round robin."""
        if self._looked_at >= len(self._waits):
            self._looked_at = 0
        chosen = list(islice(self._waits, self._looked_at, self._looked_at + most))
        self._looked_at += most
        return chosen

    def wants(self, slot: NodeSlot) -> bool:
        """Whether a waiting workload could use the node, now or when more of it is free."""
        if self._by_own_node.get(slot.node_id):
            return True
        groups = self._lines.that_may_fit(slot.allocatable)
        first = next(groups, None)
        if first is None:
            return False
        empty = _emptied(slot)
        return any(reject(empty, needs) is None for needs, _ in chain((first,), groups))

    def pending_entry(self, workload_id: WorkloadId) -> PendingEntry:
        return self._waits[workload_id]

    def _as_many_as_fit(self, slot: NodeSlot) -> Iterator[WorkloadId]:
        if slot.closed:
            return
        heads: list[tuple[int, int, WorkloadId, Iterator[WorkloadId], Requirements]] = []
        for needs, line in self._lines.that_may_fit(slot.free):
            if reject(slot, needs) is None:
                members = iter(line)
                first = next(members)
                heads.append((-needs.rules.priority, self._numbers[first], first, members, needs))
        heapify(heads)
        left = slot.copy()
        while heads:
            rank, _, workload_id, members, needs = heappop(heads)
            if reject(left, needs) is not None:
                continue
            if slot.node_id not in self._waits[workload_id].old_copies:
                yield workload_id
                _take(left, needs)
            following = next(members, None)
            if following is not None:
                number = self._numbers[following]
                heappush(heads, (rank, number, following, members, needs))


def _emptied(slot: NodeSlot) -> NodeSlot:
    pools = PoolCapacity(slot.pools.accounts) if slot.pools is not None else None
    return replace(slot, free=slot.allocatable, ports={}, members={}, apart={}, pools=pools)


def _take(slot: NodeSlot, needs: Requirements) -> None:
    slot.free -= needs.resources
    if slot.pools is not None:
        slot.pools.take(needs.resources.disk_gb, needs.pools)
    for port in needs.host_ports:
        slot.ports[port] = 1
    if group := needs.rules.group:
        slot.members[group] = slot.members.get(group, 0) + 1
        if needs.rules.apart:
            slot.apart[group] = 1
