"""One node in the index: its attributes, its reservations, its storage pools and its rank.

Pools on one file system are one account. Disk space without a pool is taken from the first account; VM disks
without a pool, from the account that the node uses for disks. Most nodes have a single account and no
PoolCapacity.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

from persys.model.ids import NodeId
from persys.model.node import Capabilities
from persys.model.placement import DISKS, Draws, HostPort, Resources

DEFAULT = "local"


@dataclass(frozen=True, slots=True)
class Accounts:
    total_gb: Mapping[str, int]
    of: Mapping[str, str]  # pool: account
    default: str
    disks: str

    def drawn(self, disk_gb: int, pools: Draws) -> dict[str, int]:
        """GB by account. A pool that the node does not have is rejected elsewhere."""
        drawn: dict[str, int] = {}
        rest = disk_gb
        for pool, size_gb in pools:
            account = self.disks if pool == DISKS else self.of.get(pool, self.default)
            drawn[account] = drawn.get(account, 0) + size_gb
            rest -= size_gb
        if rest > 0:
            drawn[self.default] = drawn.get(self.default, 0) + rest
        return drawn


def accounts_of(has: Capabilities) -> Accounts | None:
    """None: the node has a single account."""
    of = {pool.name: pool.shares_with or pool.name for pool in has.pools}
    total_gb = {pool.name: pool.total_gb for pool in has.pools if not pool.shares_with}
    if len(total_gb) < 2:
        return None
    default = DEFAULT if DEFAULT in total_gb else next(iter(total_gb))
    for_disks = [of[pool.name] for pool in has.pools if pool.for_disks]
    return Accounts(total_gb, of, default, for_disks[0] if for_disks else default)


@dataclass(frozen=True, slots=True)
class Shortage:
    pool: str
    needed_gb: int
    missing_gb: int


class PoolCapacity:
    """The free space in the accounts of one node."""

    __slots__ = ("accounts", "free_gb")

    def __init__(self, accounts: Accounts, free_gb: Mapping[str, int] | None = None) -> None:
        self.accounts = accounts
        self.free_gb = dict(accounts.total_gb if free_gb is None else free_gb)

    def copy(self) -> "PoolCapacity":
        return PoolCapacity(self.accounts, self.free_gb)

    def take(self, disk_gb: int, pools: Draws, *, times: int = 1) -> None:
        for account, size_gb in self.accounts.drawn(disk_gb, pools).items():
            self.free_gb[account] = self.free_gb.get(account, 0) - times * size_gb

    def short_of(self, disk_gb: int, pools: Draws) -> Shortage | None:
        """The first account that has too little; None when all have enough."""
        for account, size_gb in self.accounts.drawn(disk_gb, pools).items():
            free_gb = self.free_gb.get(account, 0)
            if size_gb > free_gb:
                return Shortage(account, size_gb, size_gb - free_gb)
        return None

    def times(self, disk_gb: int, pools: Draws) -> int | None:
        """How many fit into the free space; None when it needs nothing."""
        drawn = self.accounts.drawn(disk_gb, pools)
        shares = [
            self.free_gb.get(account, 0) // size_gb
            for account, size_gb in drawn.items()
            if size_gb > 0
        ]
        return min(shares, default=None)


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
    pools: PoolCapacity | None = None  # of a node that has room in several
    silent: frozenset[str] = (
        frozenset()
    )  # traits that it has, and whose runtime does not respond now
    tier: int = 0
    price: float = 0.0
    largest: Resources | None = None  # the most on one machine behind the node, where it is limited

    @property
    def is_ranked(self) -> bool:
        """Whether it takes part in the ordered and the vector search, which cover tier 0."""
        return not self.closed and not self.tier

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
            self.ports.copy() if self.ports else {},
            self.members.copy() if self.members else {},
            self.apart.copy() if self.apart else {},
            self.rank,
            self.pools and self.pools.copy(),
            self.silent,
            self.tier,
            self.price,
            self.largest,
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


class NodeOrder:
    def __init__(self) -> None:
        self.ranks: list[Rank] = []

    def copy(self) -> "NodeOrder":
        twin = NodeOrder()
        twin.ranks = self.ranks.copy()
        return twin

    def add(self, slot: NodeSlot) -> None:
        if slot.is_ranked:
            insort(self.ranks, slot.rank)

    def discard(self, slot: NodeSlot) -> None:
        """Call it before the row changes."""
        if slot.is_ranked:
            del self.ranks[bisect_left(self.ranks, slot.rank)]
