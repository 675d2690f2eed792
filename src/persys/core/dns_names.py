"""DNS names of schedulers and agents, and the records that publish them.

Every node gets exactly one label under its shard: in CoreDNS a record below another one hides it, so that
node `b.a` would answer for node `a`. An id that is not a lower-case label is converted, with a hash suffix.
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
# Resolvers cache an answer for so long.
TTL_SECONDS = 5
MARK_DIGITS = 8
SCHEDULER = "persys-scheduler"

# DNS accepts an underscore in any label; only strict host names exclude it.
_LABEL = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
_ENDPOINT = re.compile(r"(\[(?P<six>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>[0-9]{1,5})")


class Announcement(Struct, frozen=True):
    """One record with the fields that CoreDNS reads, and its owner.

    The owner has separate fields: in `text`, which CoreDNS reads, it would be published as a TXT record.
    """

    host: str  # an address, or the name of a host
    port: int
    cluster_uid: str = ""
    node_id: str = ""  # a label may not show it
    ttl: int = TTL_SECONDS
    weight: int = 0  # of SRV records; 0: all have the same


class Zone(NamedTuple):
    """The domains of one cluster."""

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
    """The name in lower case, without a trailing dot. Raises SettingsError if it is not a DNS name."""
    name = text.lower().removesuffix(".")
    # A label of a node stands before it.
    if len(name) + LABEL_LENGTH_MAX + 1 > NAME_LENGTH_MAX:
        raise SettingsError(
            f"invalid {field} {text!r}: expected at most "
            f"{NAME_LENGTH_MAX - LABEL_LENGTH_MAX - 1} characters"
        )
    if not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise SettingsError(
            f"invalid {field} {text!r}: expected a DNS name, for example persys.example.com"
        )
    return name


def agent_name(node_id: NodeId, zone: Zone) -> str:
    return f"{label_of(node_id)}.{zone.of_shard}"


def label_of(node_id: NodeId) -> str:
    """The id if it is a valid label; otherwise a converted label with a hash of the id."""
    if _LABEL.fullmatch(node_id):
        return node_id
    mark = sha256(node_id.encode()).hexdigest()[:MARK_DIGITS]
    alike = re.sub(r"[^-a-z0-9_]", "-", node_id.lower())[: LABEL_LENGTH_MAX - MARK_DIGITS - 1]
    return f"{alike}-{mark}"


def announce_agents(nodes: Iterable[Node], zone: Zone) -> dict[str, Announcement]:
    """The records of all nodes that hold their lease, also of cordoned and draining ones."""
    announced: dict[str, Announcement] = {}
    for node in nodes:
        announcement = announce_agent(node, zone)
        if announcement is not None:
            announced[agent_name(node.id, zone)] = announcement
    return announced


def announce_agent(node: Node, zone: Zone) -> Announcement | None:
    """None for a node that is not ready or has no reachable address."""
    if node.status is NodeStatus.NOT_READY:
        return None
    found = _ENDPOINT.fullmatch(node.endpoint)
    if found is None:
        return None
    host, port = usable_host(found["six"] or found["host"]), int(found["port"])
    if not host or not 0 < port <= PORT_MAX:
        return None
    return Announcement(host, port, zone.cluster_uid, node.id)


def scheduler_service(zone: Zone) -> str:
    """The SRV name by which agents and clients find schedulers."""
    return f"_{SCHEDULER}._tcp.{zone.domain}"


def announce_scheduler(address: str, port: int, zone: Zone) -> dict[str, Announcement]:
    """SRV records under both names, and an address record. `address` is an IP address.

    The label is derived from the address, so a restarted scheduler replaces its own records.
    """
    label = f"{address.replace(':', '-').replace('.', '-').strip('-')}-{port}"
    own_name = f"{label}.{SCHEDULER}.{zone.domain}"
    # The target of an SRV record must be a host name, which has no underscore.
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
    """The records to write and to delete.

    Foreign records (None, or of another cluster) stay unless one of ours has the same name.
    """
    ours = (
        name
        for name, announcement in found.items()
        if announcement and announcement.cluster_uid == cluster_uid
    )
    return Difference(
        puts={
            name: announcement
            for name, announcement in wanted.items()
            if found.get(name) != announcement
        },
        withdrawn=[name for name in ours if name not in wanted],
    )


def usable_host(text: str) -> str:
    """A reachable address or host name, or an empty string."""
    try:
        address = ip_address(text)
    except ValueError:
        labels = text.lower().removesuffix(".").split(".")
        return ".".join(labels) if all(_LABEL.fullmatch(label) for label in labels) else ""
    unusable = address.is_unspecified or (isinstance(address, IPv6Address) and address.scope_id)
    return "" if unusable else str(address)
