"""Packs units into transactions: as many as etcd's limits allow, in order, never splitting a unit."""

from collections.abc import Iterator, Sequence

from persys.store.limits import GUARDS_MAX, OPERATIONS_MAX, TRANSACTION_BYTES_MAX
from persys.store.port import Unit


def pack(units: Sequence[Unit], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Positions of the units per transaction. `sizes` are their bytes, each within the limits."""
    together: list[int] = []
    guards = writes = total = 0
    for position, (unit, size) in enumerate(zip(units, sizes, strict=True)):
        guards += len(unit.guards)
        writes += len(unit.puts) + len(unit.deletes)
        total += size
        full = guards > GUARDS_MAX or writes > OPERATIONS_MAX or total > TRANSACTION_BYTES_MAX
        if full and together:
            yield together
            together = []
            guards, writes, total = len(unit.guards), len(unit.puts) + len(unit.deletes), size
        together.append(position)
    if together:
        yield together
