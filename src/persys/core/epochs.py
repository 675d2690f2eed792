"""Epochs: every assignment gets the next number of one counter of the cluster.

An agent refuses an order with a lower epoch than the one it has, so numbers must never repeat or decrease:
not for an id that is deleted and created again, not after a node was lost, not after a restore. Nothing has
to be remembered per id for that. What nodes report never raises the counter.

The record `/epochs` says up to which number epochs may have been used. A leader reserves a block of numbers
before it uses the first of them. A new leader starts above what is reserved and not below the clock: the
store may have been restored from an older copy, and then the record is behind what was used.
"""

import hashlib
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import EpochCounter

BLOCK = 10_000
EPOCH_MAX = 2**53 - 1  # what every JSON parser reads exactly
CLOCK_MAX = EPOCH_MAX // 2  # the year 2112
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Epochs:
    """The numbers that this process may use. Small state, no I/O."""

    def __init__(self) -> None:
        self.next = 1
        self.reserved_until = 0
        self.on_record = False
        self.proof_key = ""
        self.proofs_lost = False

    def skip_reserved(self, counter: EpochCounter) -> None:
        """Numbers up to the counter may be in use by others."""
        self._take(counter)
        self.next = max(self.next, self.reserved_until + 1)

    def skip(self, *, now: datetime) -> None:
        """Continue above all numbers that can have been used, also by a leader of whom no record is left."""
        self.next = restart_at((self.next,), now=now)

    def covers(self, epoch: int) -> bool:
        """Whether the number is reserved on record."""
        return epoch <= self.reserved_until

    def after_next_block(self, epoch: int, *, new_key: str) -> EpochCounter:
        """The record that reserves a block with this number in it. `new_key`: for a cluster without one."""
        until = max(self.reserved_until, epoch - 1) + BLOCK
        assert until <= EPOCH_MAX, "epochs are exhausted"
        return EpochCounter(until, self.proof_key or new_key, self.proofs_lost)

    def reserve(self, counter: EpochCounter) -> None:
        """The record is stored: this process may use its numbers."""
        self.on_record = True
        self._take(counter)

    def use(self, epoch: int) -> None:
        self.next = max(self.next, epoch + 1)

    def set_first_key(self, key: str) -> None:
        """The key of the cluster until the counter is on record."""
        self.proof_key = self.proof_key or key

    def on_record_now(self) -> EpochCounter | None:
        """The record as this process knows it."""
        if not self.on_record:
            return None
        return EpochCounter(self.reserved_until, self.proof_key, self.proofs_lost)

    def restarted(self, reserved_until: int) -> EpochCounter:
        """The record after records were lost. Without the key no older proof can be checked any more."""
        return EpochCounter(reserved_until, self.proof_key, self.proofs_lost or not self.proof_key)

    def _take(self, counter: EpochCounter) -> None:
        self.reserved_until = max(self.reserved_until, counter.reserved_until)
        self.proof_key = counter.proof_key or self.proof_key
        self.proofs_lost = self.proofs_lost or counter.proofs_lost


def restart_at(known: Iterable[int], *, now: datetime) -> int:
    """Where the counter continues when records were lost or restored from a copy.

    Numbers that were used after the copy was taken are unknown. The microseconds since 1970 are above them: a
    cluster does not use a million epochs per second, nor a hundred blocks. Two restores of one copy differ.
    A clock that is centuries ahead does not exhaust the counter.
    """
    return max([min((now - _UNIX) // _MICROSECOND, CLOCK_MAX), *known])


def credible(epoch: int, reserved_until: int) -> int:
    """The epoch that a node reports if it can have been handed out; otherwise 0, for unknown."""
    return epoch if 0 < epoch <= reserved_until else 0


PROOF_BYTES = 16
KEY_BITS = 256


def prove(key: str, workload_id: WorkloadId, node_id: NodeId, epoch: int) -> bytes:
    """Empty without a key. `key` is hexadecimal."""
    if not key:
        return b""
    text = f"{workload_id}\n{node_id}\n{epoch}".encode()
    return hmac.digest(bytes.fromhex(key), text, hashlib.sha256)[:PROOF_BYTES]


def is_proven(key: str, workload_id: WorkloadId, node_id: NodeId, epoch: int, proof: bytes) -> bool:
    expected = prove(key, workload_id, node_id, epoch)
    return bool(expected) and hmac.compare_digest(expected, proof)
