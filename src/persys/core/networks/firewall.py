"""The nftables rules of a node with networks, as the input of `nft -f -`.

Two tables are replaced in one transaction. The table of the family `bridge` filters frames between the ports
of bridges, without br_netfilter: a member may send with its own address and MAC only, from its own port, and
peers may not use addresses of this node. The table of the family `inet` filters packets of the host: VXLAN
packets are accepted from peers only, and members are reachable from outside through published ports only.

Frames between ports have no connection tracking on every kernel. A rule therefore drops the packets that open
TCP connections; for UDP without ports it leaves out ephemeral ports, which receive replies.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from persys.core.networks.addresses import mac_of
from persys.core.networks.devices import VXLAN_PORT, bridge_name, vxlan_name
from persys.model.network import NetworkRule, NodeNetwork

EPHEMERAL_PORT_MIN = 32768  # the default of Linux
TABLE_PREFIX = "persys_"


class Port(Struct, frozen=True, order=True):
    """A port of a bridge with the member behind it."""

    name: str
    address: str


def ruleset(
    networks: Sequence[NodeNetwork], ports: Mapping[str, Sequence[Port]], table: str
) -> str:
    """The input of nft. `ports` are the ports of members by network."""
    lines = [f"table bridge {table}", f"delete table bridge {table}"]
    lines += [f"table inet {table}", f"delete table inet {table}"]
    if networks:
        lines += _bridge_table(networks, ports, table)
        lines += _inet_table(networks, table)
    return "\n".join((*lines, ""))


def _bridge_table(
    networks: Sequence[NodeNetwork], ports: Mapping[str, Sequence[Port]], table: str
) -> list[str]:
    members = sorted(port for one in networks for port in ports.get(one.network_id, ()))
    names = [port.name for port in members]
    vxlans = [vxlan_name(one.number) for one in networks]
    return [
        f"table bridge {table} {{",
        *_set("member_ports", "ifname", (f'"{name}"' for name in names)),
        *_set("ports", "ifname", (f'"{name}"' for name in (*names, *vxlans))),
        *_set(
            "sources",
            "ifname . ether_addr . ipv4_addr",
            (f'"{one.name}" . {mac_of(one.address)} . {one.address}' for one in members),
        ),
        *_set(
            "arp_sources",
            "ifname . ether_addr . ether_addr . ipv4_addr",
            (
                f'"{one.name}" . {mac_of(one.address)} . {mac_of(one.address)} . {one.address}'
                for one in members
            ),
        ),
        "chain prerouting {",
        "type filter hook prerouting priority -300; policy accept;",
        *(line for one in networks for line in _vxlan_sources(one)),
        "iifname . ether saddr . ip saddr @sources accept",
        "iifname . ether saddr . arp saddr ether . arp saddr ip @arp_sources accept",
        "iifname @member_ports drop",
        "}",
        "chain forward {",
        "type filter hook forward priority 0; policy accept;",
        # A port whose member is not known yet reaches nothing.
        "oifname @ports iifname != @ports drop",
        "iifname @ports oifname != @ports drop",
        *(line for one in networks for line in _rules(one)),
        "}",
        "}",
    ]


def _vxlan_sources(network: NodeNetwork) -> list[str]:
    name, own = vxlan_name(network.number), _braced(network.slices)
    return [
        f'iifname "{name}" ip saddr {own} drop',
        f'iifname "{name}" arp saddr ip {own} drop',
        f'iifname "{name}" ip saddr {network.subnet} accept',
        f'iifname "{name}" arp saddr ip {network.subnet} accept',
        f'iifname "{name}" drop',
    ]


def _rules(network: NodeNetwork) -> list[str]:
    """A connection is allowed if one rule of its target allows it."""
    rules = [rule for rule in network.rules if rule.targets]
    allowed = [
        f"{_match(rule, protocol)} ip saddr {_braced(rule.sources)} accept"
        for rule in rules
        for protocol in _protocols(rule)
        if rule.sources
    ]
    return allowed + [_drop(rule, protocol) for rule in rules for protocol in _protocols(rule)]


def _protocols(rule: NetworkRule) -> tuple[str, ...]:
    return (rule.protocol,) if rule.protocol else ("tcp", "udp")


def _match(rule: NetworkRule, protocol: str) -> str:
    ports = f"dport {_braced(map(str, rule.ports))}" if rule.ports else "dport 0-65535"
    return f"ip daddr {_braced(rule.targets)} {protocol} {ports}"


def _drop(rule: NetworkRule, protocol: str) -> str:
    if protocol == "tcp":
        return f"{_match(rule, protocol)} tcp flags & (syn | ack) == syn drop"
    if rule.ports:
        return f"{_match(rule, protocol)} drop"
    return f"ip daddr {_braced(rule.targets)} udp dport 0-{EPHEMERAL_PORT_MIN - 1} drop"


def _inet_table(networks: Sequence[NodeNetwork], table: str) -> list[str]:
    lines = [
        f"table inet {table} {{",
        "chain input {",
        "type filter hook input priority -10; policy accept;",
    ]
    for one in networks:
        # The identifier of the network follows the header of UDP and 32 bits of flags.
        vxlan = f"udp dport {VXLAN_PORT} @th,96,24 {one.number}"
        peers = [peer.address for peer in one.peers]
        four = [peer for peer in peers if ":" not in peer]
        six = [peer for peer in peers if ":" in peer]
        lines += [f"ip saddr {_braced(four)} {vxlan} accept"] if four else []
        lines += [f"ip6 saddr {_braced(six)} {vxlan} accept"] if six else []
        lines.append(f"{vxlan} drop")
        lines.append(f'iifname "{bridge_name(one.number)}" ip saddr != {one.subnet} drop')
    lines += ["}", "chain forward {", "type filter hook forward priority -10; policy accept;"]
    for one in networks:
        bridge = bridge_name(one.number)
        lines += [
            f'iifname "{bridge}" ip saddr != {one.subnet} drop',
            f'iifname "{bridge}" oifname "{bridge}" accept',
            f'oifname "{bridge}" ct state established,related accept',
            f'oifname "{bridge}" ct status dnat accept',
            f'oifname "{bridge}" drop',
        ]
    return [*lines, "}", "}"]


def _set(name: str, kind: str, elements: Iterable[str]) -> list[str]:
    found = ", ".join(elements)
    content = [f"elements = {{ {found} }}"] if found else []
    return [f"set {name} {{", f"type {kind}", *content, "}"]


def _braced(values: Iterable[str]) -> str:
    return f"{{ {', '.join(values)} }}"
