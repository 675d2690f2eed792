"""Names in DNS: which schedulers and agents have, and what must be written so that they are found.

Every node gets exactly one label under its shard: CoreDNS would let a record below another hide it, so that
node `b.a` would answer for node `a`. An id that is no lower-case label becomes one, with a mark of its own.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from msgspec import Struct

from persys.errors import SettingsError
from persys.model.ids import NodeId
from persys.model.node import Node, NodeStatus

NAME_LENGTH_MAX = 253
LABEL_LENGTH_MAX = 63
PORT_MAX = 65535
# Whoever asked keeps the answer for so long, also when it is not true any more.
TTL_SECONDS = 5
MARK_DIGITS = 8
SCHEDULER = "persys-scheduler"

# DNS takes an underscore in any label; only names of hosts in the strict sense may have none.
_LABEL = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
_ENDPOINT = re.compile(r"(\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


class Announcement(Struct, frozen=True):
    """One record with the fields that CoreDNS reads, and whose it is.

    That has fields of its own: as `text`, which CoreDNS knows, it would turn a host's name into TXT.
    """

    host: str  # an address, or the name of a host
    port: int
    cluster_uid: str = ""
    node_id: str = ""  # a label may not show it
    ttl: int = TTL_SECONDS


class Zone(NamedTuple):
    """Where the names are, and of which cluster."""

    domain: str  # of the schedulers
    agents_domain: str
    shard: str
    cluster_uid: str = ""

    @property
    def of_shard(self) -> str:
        return f"{self.shard}.{self.agents_domain}"


class Difference(NamedTuple):
    puts: dict[str, Announcement]
    withdrawn: list[str]


def checked_name(text: str, *, field: str) -> str:
    """As DNS has it: without a dot at the end, in lower case."""
    name = text.lower().removesuffix(".")
    # A label of a node stands before it.
    if len(name) + LABEL_LENGTH_MAX + 1 > NAME_LENGTH_MAX:
        raise SettingsError(f"{field}={text!r}: too long for a name in DNS")
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise SettingsError(f"{field}={text!r}: no name in DNS")
    return name


def agent_name(node_id: NodeId, zone: Zone) -> str:
    return f"{label_of(node_id)}.{zone.of_shard}"


def label_of(node_id: NodeId) -> str:
    """The id itself where it is a label; else what it looks like as one, and a mark that only it has."""
    if _LABEL.fullmatch(node_id):
        return node_id
    mark = sha256(node_id.encode()).hexdigest()[:MARK_DIGITS]
    alike = re.sub(r"[^-a-z0-9_]", "-", node_id.lower())[: LABEL_LENGTH_MAX - MARK_DIGITS - 1]
    return f"{alike}-{mark}"


def announce_agents(nodes: Iterable[Node], zone: Zone) -> dict[str, Announcement]:
    """The names of all that hold their lease, also of those that take no new work: they are there."""
    announced: dict[str, Announcement] = {}
    for node in nodes:
        said = announce_agent(node, zone)
        if said is not None:
            announced[agent_name(node.id, zone)] = said
    return announced


def announce_agent(node: Node, zone: Zone) -> Announcement | None:
    """None for a node that gives no sign, or that has no address where others could reach it."""
    if node.status is NodeStatus.NOT_READY:
        return None
    found = _ENDPOINT.fullmatch(node.endpoint)
    if found is None:
        return None
    host, port = _host(found["six"] or found["host"]), int(found["port"])
    if not host or not 0 < port <= PORT_MAX:
        return None
    return Announcement(host, port, zone.cluster_uid, node.id)


def scheduler_service(zone: Zone) -> str:
    """The SRV name by which agents and clients look for schedulers."""
    return f"_{SCHEDULER}._tcp.{zone.domain}"


def announce_scheduler(address: str, port: int, zone: Zone) -> dict[str, Announcement]:
    """SRV by both names, and the address alone. `address` is an IP address.

    Each scheduler has a label made from where it is, so one that starts again replaces itself.
    """
    label = f"{address.replace(':', '-').replace('.', '-').strip('-')}-{port}"
    own_name = f"{label}.{SCHEDULER}.{zone.domain}"
    # The target of an SRV record shall be a name of a host, which has no underscore.
    service = Announcement(own_name, port, zone.cluster_uid)
    return {
        own_name: Announcement(address, port, zone.cluster_uid),
        f"{label}._{SCHEDULER}.{zone.domain}": service,
        f"{label}.{scheduler_service(zone)}": service,
    }


def compare(
    wanted: Mapping[str, Announcement],
    found: Mapping[str, Announcement | None],
    *,
    cluster_uid: str,
) -> Difference:
    """What to write. What others made, found as None or of another cluster, stays unless it is in the way."""
    ours = (name for name, said in found.items() if said and said.cluster_uid == cluster_uid)
    return Difference(
        puts={name: said for name, said in wanted.items() if found.get(name) != said},
        withdrawn=[name for name in ours if name not in wanted],
    )


def _host(text: str) -> str:
    """An address or a name that others can use, or nothing."""
    try:
        address = ip_address(text)
    except ValueError:
        labels = text.lower().removesuffix(".").split(".")
        return ".".join(labels) if all(_LABEL.fullmatch(label) for label in labels) else ""
    unusable = address.is_unspecified or (isinstance(address, IPv6Address) and address.scope_id)
    return "" if unusable else str(address)
