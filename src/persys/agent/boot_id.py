"""Which kernel this agent and its runtimes run on.

The scheduler compares the boot ids of two agents that claim one node: with different ids they are on two
machines, each with its own Docker and libvirt. A copy of a disk has another id as soon as it boots.
"""

from pathlib import Path
from urllib.parse import urlsplit

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def boot_id_of_runtimes(*addresses: str) -> str:
    """The boot id if all these addresses of runtimes are on this machine; otherwise empty: not certain."""
    return boot_id() if all(map(is_local, addresses)) else ""


def is_local(address: str) -> bool:
    """unix:///var/run/docker.sock and qemu:///system are; tcp://h:2375 and qemu+ssh://h/system are not."""
    return not urlsplit(address).netloc
