"""Whether one workload reaches another over a network, and what blocks it."""

from collections.abc import Iterable
from dataclasses import dataclass

from persys.core.networks.configuration import NetworkView
from persys.core.networks.members import NetworkMember, may_connect


@dataclass(frozen=True, slots=True)
class Reach:
    reachable: bool
    reason: str
    network_id: str = ""
    addresses: tuple[str, ...] = ()  # of the target


def reach(source: NetworkMember, target: NetworkMember, views: Iterable[NetworkView]) -> Reach:
    """By the first network, in the order of names, in which the source reaches the target."""
    shared = sorted(
        (
            view
            for view in views
            if view.network.network_id in source.networks
            and view.network.network_id in target.networks
        ),
        key=lambda view: view.network.network_id,
    )
    if not shared:
        return Reach(False, _nothing_shared(source, target))
    blocked = [_in_network(source, target, view) for view in shared]
    return next((one for one in blocked if one.reachable), blocked[0])


def _nothing_shared(source: NetworkMember, target: NetworkMember) -> str:
    for member in (source, target):
        if not member.networks:
            return f"{member.workload_id} joins no network"
    return (
        f"no common network: {source.workload_id} joins {', '.join(sorted(source.networks))}, "
        f"{target.workload_id} joins {', '.join(sorted(target.networks))}"
    )


def _in_network(source: NetworkMember, target: NetworkMember, view: NetworkView) -> Reach:
    network_id = view.network.network_id

    def no(reason: str) -> Reach:
        return Reach(False, f"network {network_id}: {reason}", network_id)

    if not may_connect(view.network, source):
        return no(f"its rule `from` does not include {source.workload_id}")
    for member in (source, target):
        if member.node_id is None:
            return no(f"{member.workload_id} is not assigned to a node")
        if not view.addresses(member):
            return no(f"{member.workload_id} has no address yet on node {member.node_id}")
    found = view.addresses(target)
    health = (
        ""
        if target.healthy
        else f"; {target.workload_id} is not healthy, so its name has no address"
    )
    return Reach(True, f"over network {network_id}{health}", network_id, found)
