"""Decides whether a node is alive, suspect or lost, from its lease on a monotonic clock.

A third-party agent may send heartbeats less often than configured: its lease is extended accordingly.
"""

from collections.abc import Sequence
from enum import StrEnum

HEARTBEATS_PER_LEASE = 3
INTERVALS_KEPT = 3
LEASE_LONGEST_SECONDS = 600.0


class Phase(StrEnum):
    ALIVE = "alive"  # the lease is valid
    SUSPECT = "suspect"  # the lease is over, the grace is not
    LOST = "lost"  # the grace is over too, or the node does not exist


def lease_seconds(configured: float, intervals: Sequence[float]) -> float:
    """The lease of a node, from the last intervals between its heartbeats.

    The median counts: neither a single gap nor a heartbeat right after a registration changes it.
    """
    middle = sorted(intervals)[len(intervals) // 2] if intervals else 0.0
    return max(configured, min(HEARTBEATS_PER_LEASE * middle, LEASE_LONGEST_SECONDS))


def phase_of(*, lease_until: float, grace: float, now: float) -> Phase:
    """All three in seconds of one monotonic clock."""
    if now < lease_until:
        return Phase.ALIVE
    if now < lease_until + grace:
        return Phase.SUSPECT
    return Phase.LOST
