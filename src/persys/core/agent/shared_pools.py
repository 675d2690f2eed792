"""Storage pools of a node on the same file system share its capacity: it is counted once, for the first
pool."""

from collections.abc import Sequence

from msgspec import Struct

from persys.model.node import StoragePool


class Room(Struct, frozen=True):
    """A pool of the machine. `device` is its file system; None: it is not shared."""

    name: str
    type: str
    total_gb: int
    device: int | None = None
    for_disks: bool = False


def as_pools(rooms: Sequence[Room]) -> tuple[StoragePool, ...]:
    """Of two pools with the same name the first counts."""
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
