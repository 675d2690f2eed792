"""The network configuration of a node, converted to and from the agent contract."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from persys.errors import InvalidError
from persys.model.ids import NodeId, label_id
from persys.model.network import (
    NetworkConfiguration,
    NetworkId,
    NetworkName,
    NetworkRule,
    NodeNetwork,
    Peer,
)
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.limits import check as limits_check

_PROTOCOLS = ("", "tcp", "udp")


def configuration_message(found: NetworkConfiguration) -> agent_pb2.ConfigureNetworksRequest:
    return agent_pb2.ConfigureNetworksRequest(
        version=found.version, networks=map(_network_message, found.networks), domain=found.domain
    )


def configuration(message: agent_pb2.ConfigureNetworksRequest) -> NetworkConfiguration:
    """Raises InvalidError with the first invalid field."""
    limits_check.check(message)
    if not message.version:
        raise InvalidError("version", "is missing: expected the digest of the configuration")
    return NetworkConfiguration(
        message.version,
        tuple(
            _network(network, f"networks[{index}]")
            for index, network in enumerate(message.networks)
        ),
        message.domain,
    )


def _network_message(found: NodeNetwork) -> agent_pb2.NodeNetwork:
    return agent_pb2.NodeNetwork(
        network_id=found.network_id,
        number=found.number,
        subnet=found.subnet,
        subnet6=found.subnet6,
        encrypted=found.encrypted,
        slices=found.slices,
        peers=[
            agent_pb2.NetworkPeer(
                node_id=peer.node_id,
                address=peer.address,
                slices=peer.slices,
                wireguard_key=peer.wireguard_key,
            )
            for peer in found.peers
        ],
        names=[
            agent_pb2.NetworkName(name=name.name, addresses=name.addresses) for name in found.names
        ],
        rules=[
            agent_pb2.NetworkRule(
                targets=rule.targets,
                ports=rule.ports,
                protocol=rule.protocol,
                sources=rule.sources,
            )
            for rule in found.rules
        ],
    )


def _network(message: agent_pb2.NodeNetwork, where: str) -> NodeNetwork:
    return NodeNetwork(
        network_id=NetworkId(
            label_id(message.network_id, "network name", field=f"{where}.network_id")
        ),
        number=message.number,
        subnet=_subnet(message.subnet, f"{where}.subnet"),
        slices=tuple(_subnet(text, f"{where}.slices") for text in message.slices),
        subnet6=_subnet(message.subnet6, f"{where}.subnet6") if message.subnet6 else "",
        encrypted=message.encrypted,
        peers=tuple(
            Peer(
                NodeId(peer.node_id),
                peer.address,
                tuple(_subnet(text, f"{where}.peers.slices") for text in peer.slices),
                peer.wireguard_key,
            )
            for peer in message.peers
        ),
        names=tuple(
            NetworkName(name.name, _addresses(name.addresses, f"{where}.names.addresses"))
            for name in message.names
        ),
        rules=tuple(
            _rule(rule, f"{where}.rules[{index}]") for index, rule in enumerate(message.rules)
        ),
    )


def _rule(message: agent_pb2.NetworkRule, where: str) -> NetworkRule:
    if message.protocol not in _PROTOCOLS:
        raise InvalidError(
            f"{where}.protocol", f"invalid protocol {message.protocol!r}: expected tcp or udp"
        )
    return NetworkRule(
        _addresses(message.targets, f"{where}.targets"),
        _addresses(message.sources, f"{where}.sources"),
        tuple(message.ports),
        message.protocol,
    )


def _subnet(text: str, where: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError:
        expected = "expected an address and a prefix length, for example 10.128.0.0/22"
        raise InvalidError(where, f"invalid subnet {text!r}: {expected}") from None


def _addresses(found: Iterable[str], where: str) -> tuple[str, ...]:
    return tuple(_address(text, where) for text in found)


def _address(text: str, where: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise InvalidError(
            where, f"invalid address {text!r}: expected an IP address, for example 10.128.0.5"
        ) from None
