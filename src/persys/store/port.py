"""The Store port: its contract, in prose and types. Every adapter passes `tests/contracts`.

Keys are text, values are bytes. The store has one revision, a number that increases by one with each
transaction. The version of a record is the revision that last wrote it; 0 means that there is no record.

A response of the store is authoritative. No response is StoreUnavailableError and says nothing about what is
stored: a commit without a response may or may not have happened.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import eq
from typing import NewType, Protocol, overload

from msgspec import Struct

LeaseId = NewType("LeaseId", int)

# etcd refuses requests over 1.5 MiB; a value must leave room for its transaction.
VALUE_BYTES_MAX = 1024 * 1024 - 1


class Record(Struct, frozen=True, gc=False):  # no reference cycles, and there are very many
    key: str
    value: bytes
    version: int


class RecordBlock:
    """A few hundred records: their keys in one text, their values in one piece of memory."""

    __slots__ = ("_key_ends", "_keys", "_value_ends", "_values", "_versions")

    def __init__(self, rows: Collection[tuple[str, bytes, int]]) -> None:
        """`rows`: key, value and version."""
        self._keys = "".join([row[0] for row in rows])
        self._values = b"".join([row[1] for row in rows])
        self._key_ends = array("Q", accumulate([len(row[0]) for row in rows]))
        self._value_ends = array("Q", accumulate([len(row[1]) for row in rows]))
        self._versions = array("Q", [row[2] for row in rows])

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[Record]:
        keys, values = self._keys, self._values
        key_at = value_at = 0
        for key_end, value_end, version in zip(
            self._key_ends, self._value_ends, self._versions, strict=True
        ):
            yield Record(keys[key_at:key_end], values[value_at:value_end], version)
            key_at, value_at = key_end, value_end

    def at(self, index: int) -> Record:
        key_at = self._key_ends[index - 1] if index else 0
        value_at = self._value_ends[index - 1] if index else 0
        key = self._keys[key_at : self._key_ends[index]]
        return Record(key, self._values[value_at : self._value_ends[index]], self._versions[index])


class PackedRecords(Sequence[Record]):
    """Records in few large pieces of memory. Each record is created when it is read.

    A store may have 500,000 records, which are needed once, to load them. As small objects they would leave
    holes between the objects that stay, and the process would keep that memory.
    """

    def __init__(self, blocks: Sequence[RecordBlock]) -> None:
        """`blocks` are not empty."""
        self._blocks = blocks
        self._ends = list(accumulate(map(len, blocks)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self._blocks)

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of the same records."""
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        if isinstance(index, slice):
            return tuple(self[one] for one in range(*index.indices(len(self))))
        index = range(len(self))[index]
        number = bisect_right(self._ends, index)
        block = self._blocks[number]
        return block.at(index - self._ends[number] + len(block))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All records under a prefix at one revision, in key order."""

    revision: int
    records: Sequence[Record]

    def get(self, key: str) -> Record | None:
        found = bisect_left(self.records, key, key=lambda record: record.key)
        if found == len(self.records) or self.records[found].key != key:
            return None
        return self.records[found]


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
