"""The boot id of the kernel that runs this agent and its runtimes.

The scheduler compares the boot ids of two agents that register as the same node: different ids mean two
hosts, each with its own Docker and libvirt. A cloned disk has a different boot id once it boots.
"""

from pathlib import Path
from urllib.parse import urlsplit

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def boot_id_of_runtimes(*addresses: str) -> str:
    """The boot id if all runtime addresses are on this host; otherwise "" (unknown)."""
    return boot_id() if all(map(is_local, addresses)) else ""


def is_local(address: str) -> bool:
    """True for unix:///var/run/docker.sock and qemu:///system, False for tcp://h:2375 and qemu+ssh://h/system."""
    return not urlsplit(address).netloc
