"""Limits of a commit, checked by every adapter before anything is written.

The limits are those of etcd (128 operations in each list of a transaction, requests of 1.5 MiB), so that all
stores accept the same commits.
"""

from collections.abc import Sequence

from persys.errors import InvalidError
from persys.store.port import VALUE_BYTES_MAX, Unit

OPERATIONS_MAX = 128
# One compare of every transaction is reserved for the fence.
GUARDS_MAX = OPERATIONS_MAX - 1
# Leaves a sixth of etcd's 1.5 MiB for a key namespace and the overhead of its log.
TRANSACTION_BYTES_MAX = 1280 * 1024
# Field tags, lengths and the version or lease of a key.
_OPERATION_BYTES = 32


def check(units: Sequence[Unit]) -> list[int]:
    """The size of each unit in bytes. Raises InvalidError naming the key that breaks a limit."""
    writers: set[str] = set()
    guards: dict[str, int] = {}
    sizes = []
    for position, unit in enumerate(units):
        sizes.append(_size(unit))
        for key in (*unit.puts, *unit.deletes):
            if key in writers:
                raise InvalidError(key, "is written twice in one commit")
            writers.add(key)
        for key in unit.guards:
            guards[key] = position if guards.get(key, position) == position else -1
    for position, unit in enumerate(units):
        for key in (*unit.puts, *unit.deletes):
            if guards.get(key, position) != position:
                raise InvalidError(
                    key, "is guarded by one unit of the commit and written by another"
                )
    return sizes


def _size(unit: Unit) -> int:
    total = 0
    for key, value in unit.puts.items():
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidError(
                key, f"a value of {len(value)} bytes exceeds the limit of {VALUE_BYTES_MAX}"
            )
        total += key_bytes(key) + len(value) + _OPERATION_BYTES
    for key in unit.deletes:
        total += key_bytes(key) + _OPERATION_BYTES
    for key in unit.guards:
        total += guard_bytes(key)
    writes = len(unit.puts) + len(unit.deletes)
    if writes > OPERATIONS_MAX or len(unit.guards) > GUARDS_MAX:
        raise InvalidError(
            _any_key(unit),
            f"a unit of {writes} writes and {len(unit.guards)} guards exceeds the limits of "
            f"{OPERATIONS_MAX} and {GUARDS_MAX}",
        )
    if total > TRANSACTION_BYTES_MAX:
        raise InvalidError(
            _any_key(unit),
            f"a unit of {total} bytes exceeds the limit of {TRANSACTION_BYTES_MAX}",
        )
    return total


def guard_bytes(key: str) -> int:
    """The key of a guard is sent twice: for the comparison, and for the read when it fails."""
    return 2 * (key_bytes(key) + _OPERATION_BYTES)


def key_bytes(key: str) -> int:
    if not key:
        raise InvalidError("key", "must not be empty")
    if key.isascii():
        return len(key)
    try:
        return len(key.encode())
    except UnicodeEncodeError as err:
        raise InvalidError(ascii(key), "is not valid text") from err


def _any_key(unit: Unit) -> str:
    return next(iter((*unit.puts, *unit.deletes, *unit.guards)))
