"""Unreadable stored records: damaged, or written by a newer version.

A quarantined record stays in the store unchanged. It is not in memory, so decisions that need it are not
made, and writes to its key are refused. Only a damaged record whose content is reported again, such as a
status, is replaced by the next write. An operator repairs the rest: restores the value or deletes the key
(`scheduler/recovery/record_repair.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persys.errors import QuarantinedError


@dataclass(frozen=True, slots=True)
class Quarantined:
    """`replaceable`: the scheduler may overwrite this key although it is unreadable."""

    key: str
    kind: str  # the name of the record type
    reason: str
    replaceable: bool

    def __str__(self) -> str:
        return f"record {self.key} cannot be read: {self.reason}"


class Quarantine:
    def __init__(self) -> None:
        self._records: dict[str, Quarantined] = {}
        self._unreported: dict[str, Quarantined] = {}
        self._released: set[str] = set()
        self._by_name: dict[str, set[str]] = {}  # keys by the part after their last slash

    def __iter__(self) -> Iterator[Quarantined]:
        """Sorted by key."""
        return iter([self._records[key] for key in sorted(self._records)])

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def put(self, record: Quarantined) -> None:
        if self._records.get(record.key) != record:
            self._unreported[record.key] = record
        self._records[record.key] = record
        self._by_name.setdefault(_name(record.key), set()).add(record.key)

    def release(self, key: str) -> None:
        """The key was deleted, or its record is readable again."""
        if self._records.pop(key, None) is None:
            return
        named = self._by_name[_name(key)]
        named.discard(key)
        if not named:
            del self._by_name[_name(key)]
        if self._unreported.pop(key, None) is None:
            self._released.add(key)

    def release_all_but(self, keys: Iterable[str]) -> None:
        for key in self._records.keys() - set(keys):
            self.release(key)

    def take_unreported(self) -> list[Quarantined]:
        """The records that were not returned before."""
        unreported, self._unreported = self._unreported, {}
        return list(unreported.values())

    def take_released(self) -> set[str]:
        """The keys that were reported and are readable again or deleted."""
        released, self._released = self._released, set()
        return released

    def check_writable(self, keys: Iterable[str]) -> None:
        """Raises QuarantinedError if one of these keys must not be written or deleted."""
        for key in keys:
            held = self._records.get(key)
            if held is not None and not held.replaceable:
                raise QuarantinedError(
                    f"{held}; export it with `persysctl record get {key} --export FILE`, then delete "
                    f"it with `persysctl record delete {key} --confirm`"
                )

    def get(self, key: str) -> Quarantined | None:
        return self._records.get(key)

    def named(self, prefix: str, name: str) -> list[Quarantined]:
        """The records whose key starts with the prefix and ends with the name."""
        found = sorted(key for key in self._by_name.get(name, ()) if key.startswith(prefix))
        return [self._records[key] for key in found]

    def reason(self, key: str) -> str:
        """Why the record of this key is unreadable; empty if it is readable."""
        held = self._records.get(key)
        return str(held) if held is not None else ""


def _name(key: str) -> str:
    return key.rpartition("/")[2]
