"""Whether the running containers of a stack are still as Compose made them.

What a Compose file says of networks, limits and names takes many forms, so the comparison is with the
container itself: how it was when it was first seen running. A container that was not seen before is compared
with the network that Docker says it was created in.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from persys.agent.runtimes.docker_form import SERVICE_LABEL
from persys.agent.runtimes.docker_shape import first_network, joined_container, shape_of
from persys.core.deviations import Deviation, DeviationKind, Shape, deviations

_RUNNING = "running"


class Compared(NamedTuple):
    deviations: dict[str, tuple[Deviation, ...]]  # by the id of the container
    shapes: dict[str, Shape]  # to compare with from now on


def compare(
    found: Sequence[Mapping[str, Any]], shapes: Mapping[str, Shape], *, gone: Collection[str] = ()
) -> Compared:
    """`found` are all containers of the stack, `gone` those whose network one of them uses and that are not
    there any more. Raises KeyError, TypeError, ValueError for what Docker does not describe as usual."""
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
        if _has_lost_joined(one, starts, gone):
            text = "the container whose network it uses was started again"
            differs = (*differs, Deviation(DeviationKind.NETWORK, text, part=part))
        if differs:
            differing[container_id] = differs
        elif container_id not in known:
            known[container_id] = seen
    return Compared(differing, known)


def stranded_services(
    found: Sequence[Mapping[str, Any]], networks: Collection[str]
) -> frozenset[str]:
    """Services with a container that cannot start: a network of it was removed while it was stopped.

    `networks` are the ids of all that there are. Docker refers to them by id from the first start on.
    """
    return frozenset(
        _service(one)
        for one in found
        if one["State"]["Status"] != _RUNNING and not _network_ids(one) <= set(networks)
    )


def joined_elsewhere(found: Sequence[Mapping[str, Any]]) -> set[str]:
    """Ids of containers whose network one of these uses, and that are not among these."""
    return {joined_container(one) for one in found} - {one["Id"] for one in found} - {""}


def _has_lost_joined(
    one: Mapping[str, Any], starts: Mapping[str, str], gone: Collection[str]
) -> bool:
    """It keeps the network of the process that has ended; only one that starts later gets the new one."""
    joined = joined_container(one)
    return joined in gone or (joined in starts and starts[joined] > str(one["State"]["StartedAt"]))


def _network_ids(one: Mapping[str, Any]) -> set[str]:
    endpoints = one["NetworkSettings"].get("Networks") or {}
    return {str(endpoint["NetworkID"]) for endpoint in endpoints.values()} - {""}


def _service(one: Mapping[str, Any]) -> str:
    return str((one["Config"].get("Labels") or {}).get(SERVICE_LABEL, ""))
