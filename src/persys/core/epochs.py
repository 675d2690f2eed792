"""Epochs: every assignment gets the next number of one counter of the cluster.

An agent refuses an order with a lower epoch than the one it has, so numbers must never repeat or decrease:
not for an id that is deleted and created again, not after a node was lost, not after a restore. Nothing has
to be remembered per id for that. What nodes report never raises the counter.

The record `/epochs` says up to which number epochs may have been used. A leader reserves a block of numbers
before it uses the first of them, and a new leader starts above what is reserved.
"""

from collections.abc import Iterable
from datetime import datetime

from persys.model.assignment import EpochCounter

BLOCK = 10_000
EPOCH_MAX = 2**53 - 1  # what every JSON parser reads exactly


class Epochs:
    """The numbers that this process may use. Small state, no I/O."""

    def __init__(self) -> None:
        self.next = 1
        self.reserved_until = 0
        self.on_record = False

    def learn(self, counter: EpochCounter) -> None:
        """Numbers up to the counter may be in use by others."""
        self.reserved_until = max(self.reserved_until, counter.reserved_until)
        self.next = self.reserved_until + 1

    def covers(self, epoch: int) -> bool:
        """Whether the number is reserved on record."""
        return epoch <= self.reserved_until

    def after_next_block(self, epoch: int) -> EpochCounter:
        """The record that reserves a block with this number in it."""
        until = max(self.reserved_until, epoch - 1) + BLOCK
        assert until <= EPOCH_MAX, "epochs are exhausted"
        return EpochCounter(until)

    def reserve(self, counter: EpochCounter) -> None:
        """The record is stored: its numbers are ours."""
        self.on_record = True
        self.reserved_until = max(self.reserved_until, counter.reserved_until)

    def use(self, epoch: int) -> None:
        self.next = max(self.next, epoch + 1)


def restart_at(known: Iterable[int], *, now: datetime) -> int:
    """Where the counter goes on when records were lost or brought back from a copy.

    Numbers that were used after the copy was taken are unknown. The milliseconds since 1970 are above them,
    because a cluster does not use a thousand epochs per second for long, and two restores of one copy differ.
    """
    return max([round(now.timestamp() * 1000), *known])


def credible(epoch: int, reserved_until: int) -> int:
    """The epoch that a node reports if it can have been handed out; otherwise 0, for unknown."""
    return epoch if 0 < epoch <= reserved_until else 0
