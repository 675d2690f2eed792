"""Capacity, usage and boot id of this host, read from the kernel.

The scheduler compares the boot ids of two agents that register as the same node: different ids mean two
hosts, each with its own Docker and libvirt. A cloned disk has a different boot id once it boots.
"""

import os
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

_PROC_STAT = Path("/proc/stat")
_PROC_MEMINFO = Path("/proc/meminfo")
_GIB = 1 << 30
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CpuTime(Struct, frozen=True):
    """Ticks since boot, over all cores."""

    busy: int
    total: int

    def busy_since(self, before: "CpuTime") -> float:
        """The busy share since `before`, 0 to 1."""
        total = self.total - before.total
        return max(0.0, min(1.0, (self.busy - before.busy) / total)) if total > 0 else 0.0


class Memory(Struct, frozen=True):
    total_mb: int
    used_mb: int


class Disk(Struct, frozen=True):
    total_gb: int
    used_gb: int
    used_share: float
    device: int = 0  # the file system; paths with the same device share its capacity


def cpu_millicores() -> int:
    return (os.cpu_count() or 1) * 1000


def cpu_time() -> CpuTime:
    fields = [int(word) for word in _PROC_STAT.read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]  # idle and iowait
    return CpuTime(busy=sum(fields) - idle, total=sum(fields))


def memory() -> Memory:
    kilobytes = {}
    for line in _PROC_MEMINFO.read_text().splitlines():
        name, _, amount = line.partition(":")
        kilobytes[name] = int(amount.split()[0])
    total = kilobytes["MemTotal"]
    return Memory(total_mb=total >> 10, used_mb=(total - kilobytes["MemAvailable"]) >> 10)


def disk(path: Path) -> Disk:
    """The file system of the path, or of its nearest existing parent."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    total = found.f_blocks * found.f_frsize
    used = total - found.f_bfree * found.f_frsize
    share = used / total if total else 0.0
    return Disk(total // _GIB, used // _GIB, share, path.stat().st_dev)


def boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def boot_id_of_runtimes(*addresses: str) -> str:
    """The boot id if all runtime addresses are on this host; otherwise "" (unknown)."""
    return boot_id() if all(map(is_local, addresses)) else ""


def is_local(address: str) -> bool:
    """True for unix:///var/run/docker.sock and qemu:///system, False for tcp://h:2375 and qemu+ssh://h/system."""
    return not urlsplit(address).netloc
