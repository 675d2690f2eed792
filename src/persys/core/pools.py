"""Pools of a node that stand on one file system have one room: it is counted once, for the first of them."""

from collections.abc import Sequence

from msgspec import Struct

from persys.model.node import StoragePool


class Room(Struct, frozen=True):
    """A pool as found on the machine. `device` is its file system; None: it has one of its own."""

    name: str
    type: str
    total_gb: int
    device: int | None = None
    for_disks: bool = False


def as_pools(rooms: Sequence[Room]) -> tuple[StoragePool, ...]:
    """Of two with the same name the first counts."""
    pools: dict[str, StoragePool] = {}
    owners: dict[int, str] = {}
    for room in rooms:
        if room.name in pools:
            continue
        owner = owners.setdefault(room.device, room.name) if room.device is not None else room.name
        shares = owner != room.name
        pools[room.name] = StoragePool(
            room.name,
            room.type,
            0 if shares else room.total_gb,
            owner if shares else "",
            room.for_disks,
        )
    return tuple(pools.values())
