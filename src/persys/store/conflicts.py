"""Checks the guards of a commit and computes its changes, for the stores that hold their own records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from persys.errors import FencedError
from persys.store.port import Committed, Conflict, Outcome, Unit, WatchEvent


@dataclass(frozen=True, slots=True)
class GuardResult:
    """`changes` is what the transaction writes; without changes there is no transaction."""

    outcomes: list[Outcome]
    accepted: list[Unit]
    changes: tuple[WatchEvent, ...]


def keys_relied_on(units: Sequence[Unit], fence: tuple[str, int] | None) -> set[str]:
    """The keys whose versions `check_guards` needs."""
    keys = {key for unit in units for key in unit.guards}
    keys.update(key for unit in units for key in unit.deletes)
    if fence is not None:
        keys.add(fence[0])
    return keys


def check_guards(
    units: Sequence[Unit],
    fence: tuple[str, int] | None,
    found: Mapping[str, int],
    *,
    revision: int,
) -> GuardResult:
    """`found` has the versions of the existing keys; `revision` is that of the store before this commit."""
    if units and fence is not None and found.get(fence[0], 0) != fence[1]:
        raise FencedError(f"{fence[0]} is no longer at version {fence[1]}")
    conflicts = [find_conflict(unit, found) for unit in units]
    accepted = [unit for unit, conflict in zip(units, conflicts, strict=True) if conflict is None]
    changes = _changes(accepted, found, revision + 1)
    done = Committed(revision + 1 if changes else revision)
    return GuardResult([conflict or done for conflict in conflicts], accepted, changes)


def find_conflict(unit: Unit, found: Mapping[str, int]) -> Conflict | None:
    for key, expected in unit.guards.items():
        actual = found.get(key, 0)
        if actual != expected:
            return Conflict(key, expected, actual)
    return None


def _changes(
    accepted: Sequence[Unit], found: Mapping[str, int], revision: int
) -> tuple[WatchEvent, ...]:
    changes: list[WatchEvent] = []
    for unit in accepted:
        changes += [WatchEvent(key, value, revision) for key, value in unit.puts.items()]
        changes += [WatchEvent(key, None, revision) for key in unit.deletes if key in found]
    return tuple(changes)
