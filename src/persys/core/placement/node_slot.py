"""One node in the index: its attributes, its reservations and its rank."""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from persys.core.placement.pool_capacity import PoolRoom
from persys.model.ids import NodeId
from persys.model.placement import HostPort
from persys.model.resources import Resources

Rank = tuple[float, int, NodeId]  # utilisation, number of workloads, id: lower is better


@dataclass(slots=True)
class NodeSlot:
    """One node in the index."""

    node_id: NodeId
    position: int
    allocatable: Resources
    traits: frozenset[str]
    closed: str  # why it accepts no workloads; "": it is open
    free: Resources
    labels: Mapping[str, str] = field(default_factory=dict)  # with the node's facts
    taints: frozenset[str] = frozenset()
    count: int = 0
    ports: dict[HostPort, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)  # group: how many of it are held here
    apart: dict[str, int] = field(default_factory=dict)  # of those, how many will have no other
    rank: Rank = (0.0, 0, NodeId(""))
    pools: PoolRoom | None = None  # of a node that has room in several
    silent: frozenset[str] = (
        frozenset()
    )  # traits that it has, and whose runtime does not answer now

    def copy(self) -> "NodeSlot":
        return NodeSlot(
            self.node_id,
            self.position,
            self.allocatable,
            self.traits,
            self.closed,
            self.free,
            self.labels,
            self.taints,
            self.count,
            self.ports.copy(),
            self.members.copy(),
            self.apart.copy(),
            self.rank,
            self.pools and self.pools.copy(),
            self.silent,
        )


def utilisation(slot: NodeSlot) -> float:
    """The share of the scarcest resource that is reserved."""
    total, free = slot.allocatable, slot.free
    share = 0.0
    if total.cpu_millicores > 0:
        share = 1 - free.cpu_millicores / total.cpu_millicores
    if total.memory_mb > 0:
        share = max(share, 1 - free.memory_mb / total.memory_mb)
    if total.disk_gb > 0:
        share = max(share, 1 - free.disk_gb / total.disk_gb)
    return share


class Order:
    def __init__(self) -> None:
        self.ranks: list[Rank] = []

    def copy(self) -> "Order":
        twin = Order()
        twin.ranks = self.ranks.copy()
        return twin

    def add(self, slot: NodeSlot) -> None:
        if not slot.closed:
            insort(self.ranks, slot.rank)

    def discard(self, slot: NodeSlot) -> None:
        """Call it before the row changes."""
        if not slot.closed:
            del self.ranks[bisect_left(self.ranks, slot.rank)]
