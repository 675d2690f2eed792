"""Members of a network with their addresses, and who may join."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from persys.model.ids import NodeId, WorkloadId
from persys.model.network import ADDRESSES_KEY, Network, NetworkSelector
from persys.model.spec import ComposeSpec, Spec

STACK_ADDRESSES = 16  # reserved for the services of a stack


@dataclass(frozen=True, slots=True)
class NetworkMember:
    """A workload that joins networks, with what its node reports."""

    workload_id: WorkloadId
    networks: tuple[str, ...]
    labels: Mapping[str, str]
    node_id: NodeId | None = None  # None: it has no node
    set_id: str = ""
    services: tuple[str, ...] = ()  # that have it as a member
    healthy: bool = False
    metadata: Mapping[str, str] | None = None  # of its status


def address_count_of(spec: Spec) -> int:
    """How many addresses a workload needs in each of its networks."""
    return STACK_ADDRESSES if isinstance(spec, ComposeSpec) else 1


def addresses_of(member: NetworkMember, network: Network, slices: Iterable[str]) -> tuple[str, ...]:
    """The addresses that its node reports, sorted. Only those in the slices of the node count: a node cannot
    claim addresses of others."""
    text = (member.metadata or {}).get(f"{ADDRESSES_KEY}{network.network_id}", "")
    parts = [IPv4Network(part) for part in slices]
    found = set()
    for entry in filter(None, text.split(",")):
        try:
            address = IPv4Address(entry.rpartition("=")[2].strip())
        except ValueError:
            continue
        if any(address in part for part in parts):
            found.add(address)
    return tuple(str(address) for address in sorted(found))


def refuses(network: Network, labels: Mapping[str, str]) -> str:
    """Why a workload with these labels may not join; "": it may."""
    if not network.join or any(_has_labels(one, labels) for one in network.join):
        return ""
    wanted = " or ".join(
        ", ".join(f"{name}={value}" for name, value in sorted(one.labels.items()))
        for one in network.join
    )
    return f"network {network.network_id} accepts only workloads with {wanted}"


def selects(selector: NetworkSelector, member: NetworkMember) -> bool:
    """Whether a member of a network is one of those that may connect."""
    if selector.network_id and selector.network_id not in member.networks:
        return False
    return _has_labels(selector, member.labels)


def may_connect(network: Network, member: NetworkMember) -> bool:
    return not network.sources or any(selects(one, member) for one in network.sources)


def _has_labels(selector: NetworkSelector, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in selector.labels.items())
