"""The devices of networks on a node: what they should be, and the commands that make them so.

A network has a bridge and a VXLAN device that is a port of it. Nothing is learned from packets of other
nodes: the slices of a peer determine the MAC addresses behind it, and each of them has a forwarding entry.
Broadcasts (ARP) are sent to every peer. The commands are lines for `ip -batch` and `bridge -batch`.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, ip_address

from msgspec import Struct

from persys.core.networks.addresses import bridge_address, mac_of
from persys.model.network import NodeNetwork

VXLAN_PORT = 8472
MTU = 1450
BRIDGE_PREFIX, VXLAN_PREFIX = "pnb", "pnx"
ADDRESSES_MAX = 1 << 14  # of a network: each address of a peer has a forwarding entry
FLOOD_MAC = "00:00:00:00:00:00"


class Link(Struct, frozen=True):
    """A network device, as found on the host."""

    name: str
    index: int
    kind: str = ""  # bridge, vxlan, veth, tun
    mac: str = ""
    mtu: int = 0
    master: str = ""
    alias: str = ""
    is_up: bool = False
    addresses: tuple[str, ...] = ()  # IPv4, with the prefix length
    number: int = 0  # of a VXLAN device
    port: int = 0  # of a VXLAN device
    learns: bool = False  # a VXLAN device, from packets of peers
    peer_index: int = 0  # of a veth: the index of its other end


class Forward(Struct, frozen=True, order=True):
    """A forwarding entry of a VXLAN device. `peer` is "" for the entry of the bridge."""

    mac: str
    peer: str = ""


class Changes(Struct, frozen=True):
    links: tuple[str, ...] = ()  # lines for `ip -batch`
    forwards: tuple[str, ...] = ()  # lines for `bridge -batch`

    def __bool__(self) -> bool:
        return bool(self.links or self.forwards)


def unusable(network: NodeNetwork) -> str:
    """Why this node cannot have the network; "" if it can. Nothing else is put into commands unchecked."""
    if not 0 < network.number < 1 << 24:
        return f"invalid number {network.number}: expected 1 to {(1 << 24) - 1}"
    if network.encrypted:
        return "encrypted networks are not supported by this node"
    if network.subnet6:
        return "IPv6 networks are not supported by this node"
    try:
        whole = IPv4Network(network.subnet)
        own = [IPv4Network(text) for text in network.slices]
        others = [IPv4Network(text) for peer in network.peers for text in peer.slices]
        for peer in network.peers:
            ip_address(peer.address)
        for rule in network.rules:
            for address in (*rule.targets, *rule.sources):
                IPv4Address(address)
    except ValueError as err:
        return f"invalid configuration: {err}"
    if not own:
        return "no slice of the network belongs to this node"
    if not all(one.subnet_of(whole) for one in (*own, *others)):
        return f"invalid configuration: a slice is not part of {network.subnet}"
    if whole.num_addresses > ADDRESSES_MAX:
        return f"subnet {network.subnet} is too large: expected at most {ADDRESSES_MAX} addresses"
    return ""


def bridge_name(number: int) -> str:
    return f"{BRIDGE_PREFIX}{number}"


def vxlan_name(number: int) -> str:
    return f"{VXLAN_PREFIX}{number}"


def alias_of(owner: str, network_id: str) -> str:
    """Marks a device of a network. `owner` identifies the agent."""
    return f"{owner}:{network_id}"


def owned(links: Iterable[Link], owner: str) -> dict[Link, str]:
    """The bridges and VXLAN devices of this agent, with their network. Others are never changed."""
    prefix = alias_of(owner, "")
    return {
        link: link.alias.removeprefix(prefix)
        for link in links
        if link.alias.startswith(prefix) and link.name.startswith((BRIDGE_PREFIX, VXLAN_PREFIX))
    }


def foreign(network: NodeNetwork, links: Mapping[str, Link], owner: str) -> str:
    """The name of a device with a name of this network that belongs to something else, or ""."""
    for name in (bridge_name(network.number), vxlan_name(network.number)):
        if name in links and not owned([links[name]], owner):
            return name
    return ""


def changes(
    network: NodeNetwork,
    links: Mapping[str, Link],
    forwards: Iterable[Forward],
    ports: Iterable[str],
    owner: str,
) -> Changes:
    """`forwards`: the entries of the VXLAN device. `ports`: devices of members, to attach to the bridge."""
    bridge, vxlan = bridge_name(network.number), vxlan_name(network.number)
    address = bridge_address(network.subnet, network.slices)
    assert address is not None, "a network of a node has a slice"
    lines = _bridge_lines(network, address, links.get(bridge), owner)
    found = links.get(vxlan)
    is_kept = found is not None and _is_right(found, network)
    lines += _vxlan_lines(network, found, bridge, owner)
    for port in ports:
        if port in links and links[port].master != bridge:
            lines.append(f"link set {port} master {bridge}")
    known = set(forwards) if is_kept and found is not None and found.master == bridge else set()
    return Changes(tuple(lines), tuple(_forward_lines(network, vxlan, known)))


def removals(networks: Iterable[NodeNetwork], links: Iterable[Link], owner: str) -> Changes:
    """Delete the devices of networks that this node no longer has."""
    wanted = {
        (name(one.number), one.network_id) for one in networks for name in (bridge_name, vxlan_name)
    }
    return Changes(
        tuple(
            f"link delete {link.name}"
            for link, network_id in owned(links, owner).items()
            if (link.name, network_id) not in wanted
        )
    )


def wanted_forwards(network: NodeNetwork) -> set[Forward]:
    found: set[Forward] = set()
    for peer in network.peers:
        found.add(Forward(FLOOD_MAC, peer.address))
        for text in peer.slices:
            for address in IPv4Network(text):
                mac = mac_of(str(address))
                found |= {Forward(mac, peer.address), Forward(mac)}
    return found


def _bridge_lines(network: NodeNetwork, address: str, found: Link | None, owner: str) -> list[str]:
    name, mac = bridge_name(network.number), mac_of(address)
    with_prefix = f"{address}/{network.subnet.partition('/')[2]}"
    lines: list[str] = []
    if found is None:
        lines.append(f"link add {name} mtu {MTU} address {mac} type bridge")
        lines.append(f"link set {name} alias {alias_of(owner, network.network_id)}")
    else:
        if found.mtu != MTU:
            lines.append(f"link set {name} mtu {MTU}")
        if found.mac != mac:
            lines.append(f"link set {name} address {mac}")
    has = found.addresses if found is not None else ()
    lines += [f"address delete {one} dev {name}" for one in has if one != with_prefix]
    if with_prefix not in has:
        lines.append(f"address add {with_prefix} dev {name}")
    if found is None or not found.is_up:
        lines.append(f"link set {name} up")
    return lines


def _vxlan_lines(network: NodeNetwork, found: Link | None, bridge: str, owner: str) -> list[str]:
    name = vxlan_name(network.number)
    lines: list[str] = []
    if found is not None and not _is_right(found, network):
        lines.append(f"link delete {name}")
        found = None
    if found is None:
        lines.append(
            f"link add {name} mtu {MTU} type vxlan id {network.number} dstport {VXLAN_PORT} nolearning"
        )
        lines.append(f"link set {name} alias {alias_of(owner, network.network_id)}")
    if found is None or found.master != bridge:
        lines.append(f"link set {name} master {bridge}")
        lines.append(f"link set {name} type bridge_slave learning off flood off")
    if found is None or not found.is_up:
        lines.append(f"link set {name} up")
    return lines


def _is_right(found: Link, network: NodeNetwork) -> bool:
    """These attributes cannot be changed: a device that differs is replaced."""
    made = (found.kind, found.number, found.port, found.learns, found.mtu)
    return made == ("vxlan", network.number, VXLAN_PORT, False, MTU)


def _forward_lines(network: NodeNetwork, vxlan: str, known: set[Forward]) -> Sequence[str]:
    """Entries of addresses outside of the network stay: the kernel adds some of its own."""
    wanted = wanted_forwards(network)
    ours = {one for one in known if one.mac.startswith("02:42:") or one.mac == FLOOD_MAC}
    lines = [_line("delete", vxlan, one) for one in sorted(ours - wanted)]
    return lines + [
        _line("append" if one.peer else "replace", vxlan, one) for one in sorted(wanted - ours)
    ]


def _line(verb: str, vxlan: str, forward: Forward) -> str:
    if not forward.peer:
        state = " static" if verb != "delete" else ""
        return f"fdb {verb} {forward.mac} dev {vxlan} master{state}"
    state = " permanent" if verb != "delete" else ""
    return f"fdb {verb} {forward.mac} dev {vxlan} dst {forward.peer} self{state}"
