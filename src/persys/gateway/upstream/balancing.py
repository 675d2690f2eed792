"""The order in which the schedulers of a cluster are tried.

Pure: the same key and the same schedulers give the same order. Unhealthy schedulers come last and are still
tried, because all others may fail.
"""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol, TypeVar


class Strategy(StrEnum):
    LEADER_ONLY = "leader-only"  # the leader first; a standby forwards to it
    STICKY = "sticky"  # one session, one scheduler
    SHARD = "shard"  # one workload, one scheduler


class Candidate(Protocol):
    @property
    def address(self) -> str: ...

    @property
    def healthy(self) -> bool: ...

    @property
    def is_leader(self) -> bool: ...


C = TypeVar("C", bound=Candidate)


def order_by_strategy(candidates: Sequence[C], strategy: Strategy, key: str) -> Sequence[C]:
    if len(candidates) < 2:
        return candidates
    if strategy is Strategy.LEADER_ONLY:
        return sorted(candidates, key=lambda one: (not one.healthy, not one.is_leader))
    return sorted(candidates, key=lambda one: (not one.healthy, _weight(key, one.address)))


def _weight(key: str, address: str) -> bytes:
    """Rendezvous hashing: when a scheduler leaves, only its own keys move."""
    return blake2b(f"{key}\0{address}".encode(errors="replace"), digest_size=8).digest()
