"""Amounts of resources that a node has or a workload needs."""

from msgspec import Struct


class Resources(Struct, frozen=True):
    cpu_millicores: int = 0
    memory_mb: int = 0
    disk_gb: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_millicores + other.cpu_millicores,
            self.memory_mb + other.memory_mb,
            self.disk_gb + other.disk_gb,
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_millicores - other.cpu_millicores,
            self.memory_mb - other.memory_mb,
            self.disk_gb - other.disk_gb,
        )

    def fits_in(self, room: "Resources") -> bool:
        return (
            self.cpu_millicores <= room.cpu_millicores
            and self.memory_mb <= room.memory_mb
            and self.disk_gb <= room.disk_gb
        )


# Pool name and GB. Any further disk space is taken from the node's first pool.
Draws = tuple[tuple[str, int], ...]

DISKS = ""  # in place of a name: the node's default pool for disks
