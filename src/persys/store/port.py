"""The Store port: its contract, in prose and types. Every adapter passes `tests/contracts`.

Keys are text, values are bytes. The store has one revision, a number that increases by one with each
transaction. The version of a record is the revision that last wrote it; 0 means that there is no record.

A response of the store is authoritative. No response is StoreUnavailableError and says nothing about what is
stored: a commit without a response may or may not have happened.
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
    """All records under a prefix at one revision, in key order."""

    revision: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """An atomic set of writes, and the versions that it relies on.

    `guards` maps a key to the version it must still have (0: must not exist).
    `puts` maps a key to its new value; `deletes` names keys to remove (absent keys are not an error).
    With `lease`, the puts are removed when that lease ends.
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
    """A guard failed: nothing of the unit was written. `key` is one of the changed keys."""

    key: str
    expected: int
    found: int


Outcome = Committed | Conflict


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One key's change. `value` is None when it was deleted."""

    key: str
    value: bytes | None
    version: int


class Store(Protocol):
    async def get(self, key: str) -> Record | None:
        """The record, or None if it certainly does not exist."""

    async def read(self, prefix: str) -> Snapshot:
        """All records whose key begins with `prefix`, at one revision, whatever their number."""

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        """Commit many units in as few transactions as possible; one outcome per unit, in order.

        Each unit is atomic. A unit whose guards fail does not affect the others. Units in one call must
        not touch each other's keys. `fence` is a key and its version, checked in every transaction; if
        it changed, FencedError is raised and no further unit is written.
        Raises InvalidError naming the key for a value over VALUE_BYTES_MAX or a unit too large for one
        transaction, before anything is written. NotFoundError: a unit's lease has ended; it is not written,
        the others may be. StoreUnavailableError: any unit may or may not be written.
        """

    def watch(self, prefix: str, *, after: int) -> AsyncIterator[tuple[WatchEvent, ...]]:
        """Changes under `prefix` after revision `after`, in order, one tuple per revision, without gaps.

        Raises CompactedError when that part of the history is gone, StoreUnavailableError when the
        connection is lost: the caller resumes from the last version it received.
        """

    async def grant_lease(self, ttl_seconds: int) -> LeaseId:
        """A lease that expires unless it is kept alive."""

    async def keep_lease(self, lease: LeaseId) -> bool:
        """Renew the lease. False: it has already ended."""

    async def revoke_lease(self, lease: LeaseId) -> None:
        """End the lease now and remove its records."""

    async def compact(self, revision: int) -> None:
        """Drop the history before `revision`. Records are not affected."""

    async def close(self) -> None:
        """Release everything. Commits in progress are finished first."""

    @property
    def transactions(self) -> int:
        """How many write transactions this process has committed, for metrics and benchmarks."""
