"""Compares the running containers of a stack with their shape after creation.

A Compose file can define networks, limits and names in many forms. The comparison therefore uses the shape of
the container when it was first seen running. A container without a recorded shape is compared with the
network that it was created in.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from persys.agent.runtimes.docker.deviations import first_network, joined_container, shape_of
from persys.agent.runtimes.docker.mapping import SERVICE_LABEL
from persys.core.agent.deviations import Deviation, DeviationKind, Shape, deviations

_RUNNING = "running"


class Compared(NamedTuple):
    deviations: dict[str, tuple[Deviation, ...]]  # by container id
    shapes: dict[str, Shape]  # the reference for later comparisons


def compare(
    found: Sequence[Mapping[str, Any]], shapes: Mapping[str, Shape], *, gone: Collection[str] = ()
) -> Compared:
    """Compare all containers of the stack.

    `gone`: removed containers whose network one of them still uses. Raises KeyError, TypeError, ValueError if
    Docker's description has an unexpected form.
    """
    differing: dict[str, tuple[Deviation, ...]] = {}
    known: dict[str, Shape] = {}
    starts = {one["Id"]: str(one["State"]["StartedAt"]) for one in found}
    for one in found:
        container_id, seen = str(one["Id"]), shape_of(one)
        if container_id in shapes:
            known[container_id] = shapes[container_id]
        if one["State"]["Status"] != _RUNNING:
            continue
        wanted = known.get(container_id, Shape(networks=first_network(one)))
        part = _service(one)
        differs = deviations(wanted, seen, part=part)
        if _has_stale_network(one, starts, gone):
            text = "the container whose network it uses was restarted"
            differs = (*differs, Deviation(DeviationKind.NETWORK, text, part=part))
        if differs:
            differing[container_id] = differs
        elif container_id not in known:
            known[container_id] = seen
    return Compared(differing, known)


def services_without_network(
    found: Sequence[Mapping[str, Any]], networks: Collection[str]
) -> frozenset[str]:
    """Services with a container that cannot start because one of its networks was removed.

    `networks` are the ids of all existing networks. After the first start, Docker refers to networks by id.
    """
    return frozenset(
        _service(one)
        for one in found
        if one["State"]["Status"] != _RUNNING and not _network_ids(one) <= set(networks)
    )


def joined_outside(found: Sequence[Mapping[str, Any]]) -> set[str]:
    """Ids of containers outside the stack whose network one of these containers uses."""
    return {joined_container(one) for one in found} - {one["Id"] for one in found} - {""}


def _has_stale_network(
    one: Mapping[str, Any], starts: Mapping[str, str], gone: Collection[str]
) -> bool:
    """Whether the container it joined was removed or restarted later; then its network is stale."""
    joined = joined_container(one)
    return joined in gone or (joined in starts and starts[joined] > str(one["State"]["StartedAt"]))


def _network_ids(one: Mapping[str, Any]) -> set[str]:
    endpoints = one["NetworkSettings"].get("Networks") or {}
    return {str(endpoint["NetworkID"]) for endpoint in endpoints.values()} - {""}


def _service(one: Mapping[str, Any]) -> str:
    return str((one["Config"].get("Labels") or {}).get(SERVICE_LABEL, ""))
