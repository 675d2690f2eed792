"""The subnet of a network, and the slices of it that belong to nodes.

No slice is ever held by two nodes: it is free only while no record names it. A lost node keeps its slices.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from msgspec.structs import replace

from persys.errors import InvalidError
from persys.model.ids import NodeId
from persys.model.network import Network, Slices

POOL_DEFAULT = "10.128.0.0/14"
SUBNET_PREFIX = 22  # of networks whose subnet the scheduler selects
SLICE_PREFIX = 26
SUBNET_PREFIX_LEAST = 12
NUMBER_MAX = 2**24 - 1  # VXLAN network identifiers have 24 bits
NO_SLICE = "no slice left"
_DEFAULT_ROUTE = ip_network("0.0.0.0/0")


def check_subnet(text: str, field: str = "subnet") -> str:
    """A private IPv4 subnet in its canonical form. Raises InvalidError."""
    expected = (
        f"expected a private IPv4 subnet from /{SUBNET_PREFIX_LEAST} to /{SLICE_PREFIX}, "
        "for example 10.128.0.0/22"
    )
    try:
        found = IPv4Network(text)
    except ValueError:
        raise InvalidError(field, f"invalid subnet {text[:80]!r}: {expected}") from None
    if not found.is_private or not SUBNET_PREFIX_LEAST <= found.prefixlen <= SLICE_PREFIX:
        raise InvalidError(field, f"invalid subnet {text[:80]!r}: {expected}")
    return str(found)


def check_subnet6(text: str, subnet: str, field: str = "subnet6") -> str:
    """A private IPv6 subnet with at least as many addresses as `subnet`. Raises InvalidError."""
    expected = "expected a private IPv6 subnet, for example fd00:10::/64"
    try:
        found = IPv6Network(text)
    except ValueError:
        raise InvalidError(field, f"invalid subnet {text[:80]!r}: {expected}") from None
    if not found.is_private or found.num_addresses < IPv4Network(subnet).num_addresses:
        raise InvalidError(
            field, f"invalid subnet {text[:80]!r}: {expected}, not smaller than {subnet}"
        )
    return str(found)


def check_pool(text: str, field: str) -> str:
    """A private IPv4 subnet for the subnets of networks. Raises InvalidError."""
    expected = (
        f"expected a private IPv4 subnet of at most /{SUBNET_PREFIX}, for example {POOL_DEFAULT}"
    )
    try:
        found = IPv4Network(text)
    except ValueError:
        raise InvalidError(field, f"invalid pool {text[:80]!r}: {expected}") from None
    if not found.is_private or found.prefixlen > SUBNET_PREFIX:
        raise InvalidError(field, f"invalid pool {text[:80]!r}: {expected}")
    return str(found)


def next_subnet(pool: str, taken: Iterable[str]) -> str | None:
    """The first subnet of the pool that overlaps none of `taken`; None: the pool is used up."""
    others = [IPv4Network(text) for text in taken]
    for found in IPv4Network(pool).subnets(new_prefix=SUBNET_PREFIX):
        if not any(found.overlaps(other) for other in others):
            return str(found)
    return None


def next_number(taken: Iterable[int]) -> int | None:
    used = frozenset(taken)
    return next((number for number in range(1, NUMBER_MAX + 1) if number not in used), None)


def overlapping(subnet: str, others: Iterable[str]) -> str:
    """The first of `others` that overlaps the subnet; "": none does.

    A default route overlaps nothing: a more specific route takes precedence. What is not an IPv4 subnet is
    ignored, because nodes report it.
    """
    found = IPv4Network(subnet)
    for text in others:
        try:
            other = IPv4Network(text, strict=False)
        except ValueError:
            continue
        if other != _DEFAULT_ROUTE and found.overlaps(other):
            return text
    return ""


def room_of(network: Network, slices: Iterable[str]) -> int:
    """How many addresses the slices of one node have for members.

    The first is the address of the bridge; the first and the last of the subnet are not used.
    """
    subnet = IPv4Network(network.subnet)
    unusable = (subnet.network_address, subnet.broadcast_address)
    parts = [IPv4Network(text) for text in slices]
    if not parts:
        return 0
    count = sum(part.num_addresses for part in parts)
    return count - sum(address in part for part in parts for address in unusable) - 1


@dataclass(frozen=True, slots=True)
class NoSlice:
    """All slices of the network belong to nodes."""

    network_id: str

    def __str__(self) -> str:
        return f"{NO_SLICE} in network {self.network_id}"


def reserve(
    network: Network, node_id: NodeId, held: Mapping[NodeId, Slices], *, address_count: int
) -> Slices | NoSlice:
    """The slices of a node with room for this many addresses of members.

    `held`: the slices of all nodes in this network. What the node has stays its own.
    """
    own = held.get(node_id) or Slices(network.network_id, node_id, ())
    taken = {text for one in held.values() for text in one.slices}
    free = (
        text
        for part in IPv4Network(network.subnet).subnets(new_prefix=SLICE_PREFIX)
        if (text := str(part)) not in taken
    )
    slices = own.slices
    while not slices or room_of(network, slices) < address_count:
        found = next(free, None)
        if found is None:
            return NoSlice(network.network_id)
        slices = (*slices, found)
    return own if slices == own.slices else replace(own, slices=slices)
