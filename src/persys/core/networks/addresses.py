"""The addresses of the members of a network on one node, assigned from the slices of the node.

The first usable address of the first slice belongs to the bridge. An address that was assigned is not
assigned again before it was released. The MAC address of a member follows from its address, so that other
nodes know it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network

from msgspec import Struct

from persys.model.ids import WorkloadId
from persys.model.network import ADDRESSES_KEY


class MemberAddress(Struct, frozen=True):
    """The address of a workload, or of one service of a stack, on a network."""

    network_id: str
    workload_id: WorkloadId
    address: str
    part: str = ""  # the service of a stack


def bridge_address(subnet: str, slices: Sequence[str]) -> str | None:
    """The address of the bridge on the node. None: the node has no slice."""
    found = next(_usable(subnet, slices[:1]), None)
    return None if found is None else str(found)


def next_address(subnet: str, slices: Sequence[str], taken: Collection[str]) -> str | None:
    """The lowest free address. None: all addresses of the slices are in use."""
    bridge = bridge_address(subnet, slices)
    for address in _usable(subnet, slices):
        text = str(address)
        if text != bridge and text not in taken:
            return text
    return None


def mac_of(address: str) -> str:
    """The MAC address of the member with this address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x42, *IPv4Address(address).packed))


def addresses_metadata(members: Iterable[MemberAddress]) -> dict[str, str]:
    """For the status of a workload: its addresses on each network."""
    words: dict[str, list[str]] = {}
    for one in sorted(members, key=lambda each: each.part):
        text = f"{one.part}={one.address}" if one.part else one.address
        words.setdefault(ADDRESSES_KEY + one.network_id, []).append(text)
    return {key: ",".join(found) for key, found in words.items()}


def _usable(subnet: str, slices: Sequence[str]) -> Iterator[IPv4Address]:
    """All addresses of the slices, without the first and the last address of the subnet."""
    whole = IPv4Network(subnet)
    unusable = (whole.network_address, whole.broadcast_address)
    for text in slices:
        for address in IPv4Network(text):
            if address in whole and address not in unusable:
                yield address
