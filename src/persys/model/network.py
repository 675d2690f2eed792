"""Networks: one private subnet across nodes. The scheduler assigns slices of it, agents assign addresses.

Scheduler and agent share these structs: `NodeNetwork` is the configuration of one network on one node.
"""

from datetime import datetime
from typing import NewType

from msgspec import Struct

from persys.model.ids import NodeId

NetworkId = NewType("NetworkId", str)

NETWORKS_MAX = 8  # of one workload
ADDRESSES_KEY = (
    "network."  # prefix for the metadata key of a status with the addresses on a network
)


class NetworkSelector(Struct, frozen=True, omit_defaults=True):
    """Selects workloads with all these labels, or the members of another network."""

    labels: dict[str, str] = {}
    network_id: str = ""


class Network(Struct, frozen=True):
    network_id: NetworkId
    number: int  # the VXLAN network identifier
    subnet: str  # 10.128.0.0/22
    created_at: datetime
    updated_at: datetime
    subnet6: str = ""  # "": IPv4 only
    encrypted: bool = False
    # Which workloads may join, by labels; empty: all.
    join: tuple[NetworkSelector, ...] = ()
    # Which members may open connections to members; empty: all.
    sources: tuple[NetworkSelector, ...] = ()


class Slices(Struct, frozen=True):
    """The parts of a network that belong to one node."""

    network_id: NetworkId
    node_id: NodeId
    slices: tuple[str, ...]  # 10.128.0.64/26


class Peer(Struct, frozen=True):
    """Another node with slices of the network."""

    node_id: NodeId
    address: str  # of the node on the network between nodes
    slices: tuple[str, ...]
    wireguard_key: str = ""


class NetworkName(Struct, frozen=True):
    """A name of a member, set or service, with the addresses of its healthy members."""

    name: str
    addresses: tuple[str, ...]


class NetworkRule(Struct, frozen=True):
    """Restricts who may open connections to `targets`. Without a rule every member may."""

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    ports: tuple[int, ...] = ()  # empty: all
    protocol: str = ""  # tcp, udp; "": both


class NodeNetwork(Struct, frozen=True):
    """The configuration of a network on one node."""

    network_id: NetworkId
    number: int
    subnet: str
    slices: tuple[str, ...]
    subnet6: str = ""
    encrypted: bool = False
    peers: tuple[Peer, ...] = ()
    names: tuple[NetworkName, ...] = ()
    rules: tuple[NetworkRule, ...] = ()


class NetworkConfiguration(Struct, frozen=True):
    """All networks of one node. The same version means the same content."""

    version: str
    networks: tuple[NodeNetwork, ...] = ()
    domain: str = ""
