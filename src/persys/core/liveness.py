"""Whether a node is believed alive: judged by its lease on a clock that never jumps."""

from enum import StrEnum


class Phase(StrEnum):
    ALIVE = "alive"  # the lease is valid
    SUSPECT = "suspect"  # the lease is over, the grace is not
    LOST = "lost"  # the grace is over too, or there is no such node


def phase_of(*, lease_until: float, grace: float, now: float) -> Phase:
    """All three in seconds of one monotonic clock."""
    if now < lease_until:
        return Phase.ALIVE
    if now < lease_until + grace:
        return Phase.SUSPECT
    return Phase.LOST
