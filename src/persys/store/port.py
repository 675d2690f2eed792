"""The Store port: its contract, in prose and types. Every adapter passes `tests/contracts`.

Keys are text, values bytes. The store has one revision, a number that rises by one with each transaction;
a record's version is the revision that last wrote it, and 0 means there is no record.

An answer from the store is the truth; no answer is StoreUnavailableError and says nothing about
what is stored. A commit that got no answer may or may not have happened.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NewType, Protocol

LeaseId = NewType("LeaseId", int)

# etcd refuses requests over 1.5 MiB; a value must leave room for its transaction.
VALUE_BYTES_MAX = 1024 * 1024 - 1


@dataclass(frozen=True, slots=True)
class Record:
    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything under a prefix as it was at one revision, in key order."""

    revision: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """Writes that happen together or not at all, and the versions they rely on.

    `guards` maps a key to the version it must still have (0: must not exist).
    `puts` maps a key to its new value; `deletes` names keys to remove (absent ones are no error).
    With `lease`, the puts vanish when that lease ends.
    """

    guards: Mapping[str, int] = field(default_factory=dict)
    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: Sequence[str] = ()
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    revision: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """A guard did not hold: nothing of the unit was written. `key` is one of those that moved."""

    key: str
    expected: int
    found: int


Outcome = Committed | Conflict


@dataclass(frozen=True, slots=True)
class Change:
    """One key's change. `value` is None when it was deleted."""

    key: str
    value: bytes | None
    version: int


class Store(Protocol):
    async def get(self, key: str) -> Record | None:
        """The record, or None if there positively is none."""

    async def read(self, prefix: str) -> Snapshot:
        """All records whose key begins with `prefix`, at one revision, however many they are."""

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        """Commit many units in as few transactions as possible; one outcome per unit, in order.

        Each unit is atomic. A unit whose guards fail does not harm its neighbours. Units in one call must
        not touch each other's keys. `fence` is a key and its version, checked in every transaction; when
        it moved, FencedError is raised and no further unit is written.
        Raises InvalidError naming the key for a value over VALUE_BYTES_MAX or a unit too large for one
        transaction, before anything is written. NotFoundError: a unit's lease has ended; it is not written,
        its neighbours may be. StoreUnavailableError: any unit may or may not be written.
        """

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[Change, ...]]:
        """Changes under `prefix` after revision `after`, in order, one tuple per revision, without gaps.

        Raises CompactedError when history that far back is gone, StoreUnavailableError when the
        connection is lost: the caller resumes from the last version it saw.
        """

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        """A lease that ends by itself unless kept alive."""

    async def keep_lease(self, lease: LeaseId) -> bool:
        """Start the lease's time again. False: it has already ended."""

    async def revoke_lease(self, lease: LeaseId) -> None:
        """End the lease now, and with it the records put under it."""

    async def compact(self, revision: int) -> None:
        """Forget history before `revision`. Records are untouched."""

    async def close(self) -> None:
        """Release everything. Commits under way are finished first."""

    @property
    def transactions(self) -> int:
        """How many write transactions this process has committed, for metrics and benchmarks."""
