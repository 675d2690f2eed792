"""The index of all nodes with their free capacity, updated with each reservation.

Nodes are ordered by utilisation, so the best fit is nearly always among the first few. The same values are in
arrays for the search through all nodes, except in a small cluster, which needs no arrays. Reservations are
keyed by workload and node, so that reserving or releasing twice has no effect.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from persys.core.placement.index.group_counts import GroupCounts
from persys.core.placement.index.node_slot import (
    Accounts,
    NodeOrder,
    NodeSlot,
    PoolCapacity,
    utilisation,
)
from persys.core.placement.index.ranking import RankingCache
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment, Draws, HostPort, Resources, Strategy

if TYPE_CHECKING:
    from persys.core.placement.index.arrays import AllNodes, Eligible, LabelEncoding

UNLIMITED = Resources()  # as the largest machine: a node is one machine
SCANNED_MOST = 16  # nodes that are checked one by one; with more, arrays are kept
_NO_GROUPS: frozenset[tuple[str, bool]] = frozenset()  # each frozenset() is an object of its own


class Hold(Struct, frozen=True, gc=False):  # no reference cycles, and there are very many
    resources: Resources
    host_ports: frozenset[HostPort]
    groups: frozenset[tuple[str, bool]] = _NO_GROUPS  # name, and whether anti-affinity is required
    pools: Draws = ()

    def covering(self, other: "Hold") -> "Hold":
        """The maximum of both: reserved while it is unknown which of the two is stored."""
        draws = dict(self.pools)
        for pool, amount in other.pools:
            draws[pool] = max(draws.get(pool, 0), amount)
        unnamed = max(_unnamed(self), _unnamed(other))
        mine, theirs = self.resources, other.resources
        return Hold(
            Resources(
                max(mine.cpu_millicores, theirs.cpu_millicores),
                max(mine.memory_mb, theirs.memory_mb),
                unnamed + sum(draws.values()),
            ),
            self.host_ports | other.host_ports,
            self.groups | other.groups,
            tuple(sorted(draws.items())),
        )


def _unnamed(hold: Hold) -> int:
    """The part of the disk that is not from a named pool."""
    return hold.resources.disk_gb - sum(amount for _, amount in hold.pools)


def hold_of(assignment: Assignment) -> Hold:
    """The reservation of an assignment, with the group of its rules."""
    rules = assignment.rules
    groups = frozenset({(rules.group, rules.apart)}) if rules.group else _NO_GROUPS
    return Hold(assignment.reserved, assignment.host_ports, groups, assignment.pools)


class NodeIndex:
    def __init__(self, strategy: Strategy = Strategy.SPREAD) -> None:
        self.strategy = strategy
        self.version = 0  # increases with every change
        self.slots: dict[NodeId, NodeSlot] = {}
        self.groups = GroupCounts()
        self.order = NodeOrder()
        self.ranking_cache = RankingCache(self.slots, self.order)
        self.tainted: set[NodeId] = set()
        self.port_holders: dict[HostPort, dict[NodeId, NodeSlot]] = {}
        self.pooled: dict[NodeId, NodeSlot] = {}  # nodes with several pools
        self.beyond: dict[NodeId, NodeSlot] = {}  # nodes of tiers above 0
        self.limited: dict[NodeId, NodeSlot] = {}  # nodes with several machines behind them
        # Cache of `vector_search`, until a node changes.
        self.eligible: dict[Hashable, Eligible] = {}
        self.refused: tuple[int, dict[Hashable, object]] = (
            0,
            {},
        )  # cache of `select`, for one version
        self._all: AllNodes | None = None  # made on first use, or with many nodes
        self._by_position: list[NodeSlot | None] = []
        self._holds: dict[NodeId, dict[WorkloadId, Hold]] = {}
        self._free_positions: list[int] = []

    def put_node(
        self,
        node_id: NodeId,
        *,
        allocatable: Resources,
        traits: frozenset[str],
        closed: str = "",
        labels: Mapping[str, str] | None = None,
        taints: frozenset[str] = frozenset(),
        accounts: Accounts | None = None,
        silent: frozenset[str] = frozenset(),
        tier: int = 0,
        price: float = 0.0,
        largest: Resources = UNLIMITED,
    ) -> None:
        """Add or update a node. Its reservations stay."""
        slot = self.slots.get(node_id)
        if slot is None:
            slot = NodeSlot(
                node_id, self._take_position(), allocatable, traits, closed, allocatable
            )
            slot.labels = labels or {}
            self.slots[node_id] = slot
            self._by_position[slot.position] = slot
        else:
            self.order.discard(slot)
            slot.free += allocatable - slot.allocatable
            slot.allocatable, slot.traits, slot.closed = allocatable, traits, closed
            self.groups.relabel(slot, labels or {})
        self._put_pools(slot, accounts)
        slot.taints, slot.silent = taints, silent
        self._put_tier(slot, tier, price, largest)
        (self.tainted.add if taints else self.tainted.discard)(node_id)
        for hold in () if slot.count else self._holds.get(node_id, {}).values():
            self._count(slot, hold, sign=1)
        self._code(slot)
        self._rank(slot)
        if self._all is None and len(self.slots) > SCANNED_MOST:
            self._all = self._in_arrays()

    def remove_node(self, node_id: NodeId) -> None:
        slot = self.slots.pop(node_id, None)
        if slot is None:
            return
        self.order.discard(slot)
        self.tainted.discard(node_id)
        self.pooled.pop(node_id, None)
        self.beyond.pop(node_id, None)
        self.limited.pop(node_id, None)
        for hold in self._holds.get(node_id, {}).values():
            self._count(slot, hold, sign=-1)
        self._by_position[slot.position] = None
        if self._all is not None:
            self._all.arrays.remove(slot.position)
        self._free_positions.append(slot.position)
        self.ranking_cache.alter(node_id)
        self.eligible.clear()
        self.version += 1

    def close(self, node_id: NodeId, why: str) -> None:
        """Close the node for new workloads (`why` not empty), or open it again."""
        slot = self.slots[node_id]
        self.order.discard(slot)
        slot.closed = why
        self.ranking_cache.alter(node_id)
        self._rank(slot)

    def hold(
        self,
        workload_id: WorkloadId,
        node_id: NodeId,
        resources: Resources,
        host_ports: frozenset[HostPort],
        *,
        group: str = "",
        apart: bool = False,
        pools: Draws = (),
    ) -> None:
        """Reserve, replacing the reservation of this workload on this node."""
        groups = frozenset({(group, apart)}) if group else _NO_GROUPS
        self.put_hold(workload_id, node_id, Hold(resources, host_ports, groups, pools))

    def put_hold(self, workload_id: WorkloadId, node_id: NodeId, hold: Hold) -> None:
        """Reserve, replacing the reservation of this workload on this node."""
        holds = self._holds.setdefault(node_id, {})
        old = holds.get(workload_id)
        holds[workload_id] = hold
        self._exchange(node_id, old, hold)

    def reserve(self, assignment: Assignment) -> None:
        """Reserve what an assignment needs, with the group of its rules."""
        self.put_hold(assignment.workload_id, assignment.node_id, hold_of(assignment))

    def give_back(self, workload_id: WorkloadId, node_id: NodeId) -> None:
        old = self._holds.get(node_id, {}).pop(workload_id, None)
        self._exchange(node_id, old, None)

    def give_back_all(self, node_id: NodeId) -> None:
        for workload_id in list(self._holds.get(node_id, {})):
            self.give_back(workload_id, node_id)

    def held(self, workload_id: WorkloadId, node_id: NodeId) -> Hold | None:
        return self._holds.get(node_id, {}).get(workload_id)

    def holders(self, node_id: NodeId) -> Mapping[WorkloadId, Hold]:
        return self._holds.get(node_id, {})

    def members_in(self, group: str, key: str, value: str | None) -> int:
        """How many of the group are held by nodes with this value of a label; None: without the label."""
        return self.groups.tally(group, key).get(value, 0)

    def in_order(self) -> Iterator[NodeSlot]:
        """Open nodes, emptiest first."""
        return (self.slots[node_id] for _, _, node_id in self.order.ranks)

    def at(self, position: int) -> NodeSlot:
        slot = self._by_position[position]
        assert slot is not None
        return slot

    @property
    def all_nodes(self) -> "AllNodes":
        """The nodes in arrays."""
        if self._all is None:
            self._all = self._in_arrays()
        return self._all

    def labelled(self, key: str) -> "LabelEncoding[str | None]":
        """The values of one label. Updated from the first call on."""
        return self.all_nodes.labelled(key, self.slots)

    def copy(self) -> "NodeIndex":
        """An independent copy for planning."""
        twin = NodeIndex(self.strategy)
        twin.slots = {node_id: slot.copy() for node_id, slot in self.slots.items()}
        twin.groups = self.groups.copy(twin.slots)
        twin.order = self.order.copy()
        twin._all = self._all and self._all.copy()
        twin.ranking_cache = RankingCache(twin.slots, twin.order)
        twin.tainted = self.tainted.copy()
        twin.beyond = {node_id: twin.slots[node_id] for node_id in self.beyond}
        twin.limited = {node_id: twin.slots[node_id] for node_id in self.limited}
        twin.pooled = {node_id: twin.slots[node_id] for node_id in self.pooled}
        twin.port_holders = {
            port: {node_id: twin.slots[node_id] for node_id in held}
            for port, held in self.port_holders.items()
        }
        twin._by_position = [slot and twin.slots[slot.node_id] for slot in self._by_position]
        twin._holds = {node_id: holds.copy() for node_id, holds in self._holds.items()}
        twin._free_positions = self._free_positions.copy()
        return twin

    def _exchange(self, node_id: NodeId, old: Hold | None, new: Hold | None) -> None:
        slot = self.slots.get(node_id)
        if slot is None or old == new:
            return
        self.order.discard(slot)
        if old is not None:
            self._count(slot, old, sign=-1)
        if new is not None:
            self._count(slot, new, sign=1)
        self._rank(slot)

    def _count(self, slot: NodeSlot, hold: Hold, *, sign: int) -> None:
        slot.free = slot.free - hold.resources if sign > 0 else slot.free + hold.resources
        slot.count += sign
        if slot.pools is not None:
            slot.pools.take(hold.resources.disk_gb, hold.pools, times=sign)
        for port in hold.host_ports:
            slot.ports[port] = slot.ports.get(port, 0) + sign
            if slot.ports[port]:
                self.port_holders.setdefault(port, {})[slot.node_id] = slot
                continue
            del slot.ports[port]
            del self.port_holders[port][slot.node_id]
            if not self.port_holders[port]:
                del self.port_holders[port]
        for group, apart in hold.groups:
            self.groups.count(slot, group, apart=apart, sign=sign)

    def _put_pools(self, slot: NodeSlot, accounts: Accounts | None) -> None:
        slot.pools = PoolCapacity(accounts) if accounts is not None else None
        if slot.pools is None:
            self.pooled.pop(slot.node_id, None)
            return
        self.pooled[slot.node_id] = slot
        for hold in self._holds.get(slot.node_id, {}).values() if slot.count else ():
            slot.pools.take(hold.resources.disk_gb, hold.pools)

    def _put_tier(self, slot: NodeSlot, tier: int, price: float, largest: Resources) -> None:
        slot.tier, slot.price = tier, price
        slot.largest = largest if largest != UNLIMITED else None
        for listed, is_in in ((self.beyond, bool(tier)), (self.limited, largest != UNLIMITED)):
            if is_in:
                listed[slot.node_id] = slot
            else:
                listed.pop(slot.node_id, None)

    def _rank(self, slot: NodeSlot) -> None:
        slot.rank = (utilisation(slot), slot.count, slot.node_id)
        self.order.add(slot)
        if self._all is not None:
            self._all.arrays.put(slot)
        self.ranking_cache.move(slot.node_id)
        self.version += 1

    def _code(self, slot: NodeSlot) -> None:
        self.ranking_cache.alter(slot.node_id)
        self.eligible.clear()
        if self._all is not None:
            self._all.code(slot)

    def _take_position(self) -> int:
        if self._free_positions:
            return self._free_positions.pop()
        position = len(self._by_position)
        self._by_position.append(None)
        if self._all is not None:
            self._all.make_room_for(position)
        return position

    def _in_arrays(self) -> "AllNodes":
        # A slow import: of numpy, which a small cluster does not need.
        from persys.core.placement.index.arrays import AllNodes

        found = AllNodes(len(self._by_position))
        for slot in self.slots.values():
            found.code(slot)
            found.arrays.put(slot)
        return found
