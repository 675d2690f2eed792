"""The index of all nodes with their free capacity, updated with each reservation.

Nodes are ordered by utilisation, so the best fit is nearly always among the first few. The same values are in
arrays for the search through all nodes. Reservations are keyed by workload and node, so that reserving or
releasing twice has no effect.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from persys.core.placement.anti_affinity import Groups
from persys.core.placement.arrays import Codes, Eligible, Figures
from persys.core.placement.node_slot import Order, Row, fullness
from persys.core.placement.pool_capacity import Accounts, PoolRoom
from persys.core.placement.ranking import Rankings
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment, HostPort, Strategy
from persys.model.resources import Draws, Resources

LABELS_MAX = 64
SIZE_AT_FIRST = 64


@dataclass(frozen=True, slots=True)
class Hold:
    resources: Resources
    host_ports: frozenset[HostPort]
    groups: frozenset[tuple[str, bool]] = frozenset()  # name, and whether anti-affinity is required
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
    groups = frozenset({(rules.group, rules.apart)}) if rules.group else frozenset()
    return Hold(assignment.reserved, assignment.host_ports, groups, assignment.pools)


class Columns:
    def __init__(self, strategy: Strategy = Strategy.SPREAD) -> None:
        self.strategy = strategy
        self.version = 0  # increases with every change
        self.rows: dict[NodeId, Row] = {}
        self.groups = Groups()
        self.order = Order()
        self.rankings = Rankings(self.rows, self.order)
        self.figures = Figures(SIZE_AT_FIRST)
        self.traits: Codes[frozenset[str]] = Codes(SIZE_AT_FIRST)
        self.taints: Codes[frozenset[str]] = Codes(SIZE_AT_FIRST)
        self.tainted: set[NodeId] = set()
        self.port_holders: dict[HostPort, dict[NodeId, Row]] = {}
        self.pooled: dict[NodeId, Row] = {}  # nodes with several pools
        self.eligible: dict[Hashable, Eligible] = {}  # cache of `search`, until a node changes
        self.refused: tuple[int, dict[Hashable, object]] = (
            0,
            {},
        )  # cache of `select`, for one version
        self._labels: dict[str, Codes[str | None]] = {}
        self._by_position: list[Row | None] = []
        self._holds: dict[NodeId, dict[WorkloadId, Hold]] = {}
        self._vacant: list[int] = []

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
    ) -> None:
        """Add or update a node. Its reservations stay."""
        row = self.rows.get(node_id)
        if row is None:
            row = Row(node_id, self._take_position(), allocatable, traits, closed, allocatable)
            row.labels = labels or {}
            self.rows[node_id] = row
            self._by_position[row.position] = row
        else:
            self.order.discard(row)
            row.free += allocatable - row.allocatable
            row.allocatable, row.traits, row.closed = allocatable, traits, closed
            self.groups.relabel(row, labels or {})
        self._put_pools(row, accounts)
        row.taints, row.silent = taints, silent
        (self.tainted.add if taints else self.tainted.discard)(node_id)
        for hold in () if row.count else self._holds.get(node_id, {}).values():
            self._count(row, hold, sign=1)
        self._code(row)
        self._rank(row)

    def remove_node(self, node_id: NodeId) -> None:
        row = self.rows.pop(node_id, None)
        if row is None:
            return
        self.order.discard(row)
        self.tainted.discard(node_id)
        self.pooled.pop(node_id, None)
        for hold in self._holds.get(node_id, {}).values():
            self._count(row, hold, sign=-1)
        self._by_position[row.position] = None
        self.figures.remove(row.position)
        self._vacant.append(row.position)
        self.rankings.alter(node_id)
        self.eligible.clear()
        self.version += 1

    def close(self, node_id: NodeId, why: str) -> None:
        """Close the node for new workloads (`why` not empty), or open it again."""
        row = self.rows[node_id]
        self.order.discard(row)
        row.closed = why
        self.rankings.alter(node_id)
        self._rank(row)

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
        groups = frozenset({(group, apart)}) if group else frozenset()
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

    def in_order(self) -> Iterator[Row]:
        """Open nodes, emptiest first."""
        return (self.rows[node_id] for _, _, node_id in self.order.ranks)

    def at(self, position: int) -> Row:
        row = self._by_position[position]
        assert row is not None
        return row

    def labelled(self, key: str) -> Codes[str | None]:
        """The values of one label. Updated from the first call on."""
        codes = self._labels.pop(key, None)
        # Values that no node has any more are dropped only by a rebuild.
        if codes is None or len(codes) > 2 * len(self.rows) + LABELS_MAX:
            if len(self._labels) >= LABELS_MAX:
                del self._labels[next(iter(self._labels))]  # the least recently used
            codes = Codes(len(self.figures.open))
            codes.put_all({row.position: row.labels.get(key) for row in self.rows.values()})
        self._labels[key] = codes
        return codes

    def copy(self) -> "Columns":
        """An independent copy for planning."""
        twin = Columns(self.strategy)
        twin.rows = {node_id: row.copy() for node_id, row in self.rows.items()}
        twin.groups = self.groups.copy(twin.rows)
        twin.order, twin.figures = self.order.copy(), self.figures.copy()
        twin.rankings = Rankings(twin.rows, twin.order)
        twin.traits, twin.taints = self.traits.copy(), self.taints.copy()
        twin.tainted = self.tainted.copy()
        twin.pooled = {node_id: twin.rows[node_id] for node_id in self.pooled}
        twin.port_holders = {
            port: {node_id: twin.rows[node_id] for node_id in held}
            for port, held in self.port_holders.items()
        }
        twin._by_position = [row and twin.rows[row.node_id] for row in self._by_position]
        twin._holds = {node_id: holds.copy() for node_id, holds in self._holds.items()}
        twin._vacant = self._vacant.copy()
        return twin

    def _exchange(self, node_id: NodeId, old: Hold | None, new: Hold | None) -> None:
        row = self.rows.get(node_id)
        if row is None or old == new:
            return
        self.order.discard(row)
        if old is not None:
            self._count(row, old, sign=-1)
        if new is not None:
            self._count(row, new, sign=1)
        self._rank(row)

    def _count(self, row: Row, hold: Hold, *, sign: int) -> None:
        row.free = row.free - hold.resources if sign > 0 else row.free + hold.resources
        row.count += sign
        if row.pools is not None:
            row.pools.take(hold.resources.disk_gb, hold.pools, times=sign)
        for port in hold.host_ports:
            row.ports[port] = row.ports.get(port, 0) + sign
            if row.ports[port]:
                self.port_holders.setdefault(port, {})[row.node_id] = row
                continue
            del row.ports[port]
            del self.port_holders[port][row.node_id]
            if not self.port_holders[port]:
                del self.port_holders[port]
        for group, apart in hold.groups:
            self.groups.count(row, group, apart=apart, sign=sign)

    def _put_pools(self, row: Row, accounts: Accounts | None) -> None:
        row.pools = PoolRoom(accounts) if accounts is not None else None
        if row.pools is None:
            self.pooled.pop(row.node_id, None)
            return
        self.pooled[row.node_id] = row
        for hold in self._holds.get(row.node_id, {}).values() if row.count else ():
            row.pools.take(hold.resources.disk_gb, hold.pools)

    def _rank(self, row: Row) -> None:
        row.rank = (fullness(row), row.count, row.node_id)
        self.order.add(row)
        self.figures.put(row)
        self.rankings.move(row.node_id)
        self.version += 1

    def _code(self, row: Row) -> None:
        self.rankings.alter(row.node_id)
        self.eligible.clear()
        self.traits.put(row.position, row.traits)
        self.taints.put(row.position, row.taints)
        for key, codes in self._labels.items():
            codes.put(row.position, row.labels.get(key))

    def _take_position(self) -> int:
        if self._vacant:
            return self._vacant.pop()
        position = len(self._by_position)
        self._by_position.append(None)
        if position >= len(self.figures.open):
            self.figures.grow(2 * position)
            self.traits.grow(2 * position)
            self.taints.grow(2 * position)
            for codes in self._labels.values():
                codes.grow(2 * position)
        return position
