"""Disk capacity of a node with several storage pools. Most nodes have one and do not use this module.

Pools on one file system are one account. Disk space without a pool is taken from the first account; VM disks
without a pool, from the account that the node uses for disks.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from persys.model.node import Capabilities
from persys.model.resources import DISKS, Draws

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


class PoolRoom:
    """The free space in the accounts of one node."""

    __slots__ = ("accounts", "free_gb")

    def __init__(self, accounts: Accounts, free_gb: Mapping[str, int] | None = None) -> None:
        self.accounts = accounts
        self.free_gb = dict(accounts.total_gb if free_gb is None else free_gb)

    def copy(self) -> "PoolRoom":
        return PoolRoom(self.accounts, self.free_gb)

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
