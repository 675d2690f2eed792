"""The network configuration of a node: peers, slices, names and rules.

The result depends on the content only, not on the order of its inputs: the version is a digest of it, and the
same content is not sent twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from persys.core.networks.members import NetworkMember, addresses_of, may_connect
from persys.model.ids import NodeId
from persys.model.network import (
    Network,
    NetworkConfiguration,
    NetworkName,
    NetworkRule,
    NodeNetwork,
    Peer,
    Slices,
)

VERSION_DIGITS = 16
_encoder = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class PeerNode:
    """A node as others reach it. A lost node is not a peer, but keeps its slices."""

    node_id: NodeId
    address: str
    wireguard_key: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class NetworkView:
    """A network with the slices of all its nodes and its members."""

    network: Network
    slices: Mapping[NodeId, Slices]
    members: Sequence[NetworkMember]

    def addresses(self, member: NetworkMember) -> tuple[str, ...]:
        held = self.slices.get(member.node_id) if member.node_id is not None else None
        return addresses_of(member, self.network, held.slices if held is not None else ())


def configuration_of(
    node_id: NodeId,
    views: Iterable[NetworkView],
    nodes: Mapping[NodeId, PeerNode],
    *,
    domain: str,
) -> NetworkConfiguration:
    """All networks in which the node has slices."""
    networks = tuple(
        _node_network(node_id, view, nodes)
        for view in sorted(views, key=lambda view: view.network.network_id)
        if node_id in view.slices
    )
    content = _encoder.encode([networks, domain])
    return NetworkConfiguration(sha256(content).hexdigest()[:VERSION_DIGITS], networks, domain)


def _node_network(
    node_id: NodeId, view: NetworkView, nodes: Mapping[NodeId, PeerNode]
) -> NodeNetwork:
    network = view.network
    return NodeNetwork(
        network.network_id,
        network.number,
        network.subnet,
        view.slices[node_id].slices,
        network.subnet6,
        network.encrypted,
        peers=tuple(_peers(node_id, view, nodes)),
        names=names_of(view),
        rules=rules_of(view),
    )


def _peers(node_id: NodeId, view: NetworkView, nodes: Mapping[NodeId, PeerNode]) -> Iterable[Peer]:
    for other, held in sorted(view.slices.items()):
        node = nodes.get(other)
        if other == node_id or node is None or node.lost:
            continue
        if view.network.encrypted and not node.wireguard_key:
            continue
        key = node.wireguard_key if view.network.encrypted else ""
        yield Peer(other, node.address, held.slices, key)


def names_of(view: NetworkView) -> tuple[NetworkName, ...]:
    """The names of workloads, sets and services with the addresses of their healthy members.

    A workload takes precedence over a set of the same name, and a set over a service.
    """
    workloads: dict[str, set[str]] = {}
    sets: dict[str, set[str]] = {}
    services: dict[str, set[str]] = {}
    for member in view.members:
        if not member.healthy:
            continue
        found = view.addresses(member)
        if not found:
            continue
        workloads.setdefault(member.workload_id, set()).update(found)
        if member.set_id:
            sets.setdefault(member.set_id, set()).update(found)
        for service in member.services:
            services.setdefault(service, set()).update(found)
    named = services | sets | workloads
    return tuple(NetworkName(name, tuple(sorted(named[name]))) for name in sorted(named))


def rules_of(view: NetworkView) -> tuple[NetworkRule, ...]:
    """Who may connect to members, also to those that are not healthy."""
    if not view.network.sources:
        return ()
    targets: set[str] = set()
    sources: set[str] = set()
    for member in view.members:
        found = view.addresses(member)
        targets.update(found)
        if may_connect(view.network, member):
            sources.update(found)
    return (NetworkRule(tuple(sorted(targets)), tuple(sorted(sources))),) if targets else ()
