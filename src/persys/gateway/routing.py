"""Which scheduler of a cluster is asked first, and which next if it cannot be reached.

Pure: the same key among the same schedulers gives the same order. Those that could not be reached lately come
last, and are still tried: nobody else may be left.
"""

from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol, TypeVar


class Strategy(StrEnum):
    LEADER_ONLY = "leader-only"  # the one that leads; another passes on to it
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


def in_order(candidates: Sequence[C], strategy: Strategy, key: str) -> Sequence[C]:
    if len(candidates) < 2:
        return candidates
    if strategy is Strategy.LEADER_ONLY:
        return sorted(candidates, key=lambda one: (not one.healthy, not one.is_leader))
    return sorted(candidates, key=lambda one: (not one.healthy, _weight(key, one.address)))


def _weight(key: str, address: str) -> bytes:
    """Of all pairs of key and address at random, so that who leaves takes along only its own keys."""
    return blake2b(f"{key}\0{address}".encode(errors="replace"), digest_size=8).digest()
