"""Stored records that cannot be read: damaged, or written by a newer version.

A quarantined record stays in the store as it is. Memory does not have it, so a decision that needs it is not
made, and a write to its key is refused. Only a damaged record whose content is reported again anyway, such as
a status, is replaced by the next write. An operator repairs the rest: restores the value or deletes the key
(`scheduler/record_repair.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from persys.errors import QuarantinedError


@dataclass(frozen=True, slots=True)
class Quarantined:
    """`replaceable`: the scheduler may write this key again although it could not read it."""

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
        self._by_name: dict[str, set[str]] = {}  # keys by what follows their last slash

    def __iter__(self) -> Iterator[Quarantined]:
        """In the order of their keys."""
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
        """The key was deleted, or holds a record that can be read."""
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
        """Those that were not returned before."""
        unreported, self._unreported = self._unreported, {}
        return list(unreported.values())

    def take_released(self) -> set[str]:
        """Those that were reported and can be read again, or are gone."""
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
        """Those with a key that begins with the prefix and ends with the name."""
        found = sorted(key for key in self._by_name.get(name, ()) if key.startswith(prefix))
        return [self._records[key] for key in found]

    def reason(self, key: str) -> str:
        """Why this key's record cannot be read; empty if it can."""
        held = self._records.get(key)
        return str(held) if held is not None else ""


def _name(key: str) -> str:
    return key.rpartition("/")[2]
