"""How a container is attached, published, limited and named: as Docker shows it, and repaired in place.

What would surprise: Docker goes on showing what a container was created with (`NetworkMode`, `PortBindings`)
when nothing of it holds any more. What holds is under `NetworkSettings`; a restart does not bring it back.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from persys.agent.runtimes.docker_engine import Engine, EngineError
from persys.core.deviations import Deviation, DeviationKind, Shape

RESTART_POLICY = "RestartPolicy"
# What `docker update` can change, by the names of Docker.
LIMITS = (
    "NanoCpus",
    "CpuShares",
    "CpuQuota",
    "CpuPeriod",
    "CpusetCpus",
    "Memory",
    "MemorySwap",
    "MemoryReservation",
    "PidsLimit",
)
Limits = dict[str, int | str]

_UNLIMITED_SWAP = -1
_JOINED = "container:"
_WITHOUT_NETWORK = ("host", "none")
_DEADLINE_SECONDS = 60.0


def shape_of(found: Mapping[str, Any]) -> Shape:
    """As a container is now. A network counts only with an endpoint."""
    network = found["NetworkSettings"]
    endpoints = network.get("Networks") or {}
    published = network.get("Ports") or {}
    return Shape(
        name=found["Name"].removeprefix("/"),
        networks=tuple(sorted(name for name, one in endpoints.items() if one.get("EndpointID"))),
        ports=tuple(sorted(name for name, bindings in published.items() if bindings)),
        limits=limits_of(found["HostConfig"]),
    )


def first_network(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The network that it was created in; empty if it has none of its own."""
    mode = str(found["HostConfig"].get("NetworkMode") or "default")
    if mode in _WITHOUT_NETWORK or mode.startswith(_JOINED):
        return ()
    return ("bridge" if mode == "default" else mode,)


def joined_container(found: Mapping[str, Any]) -> str:
    """The id of the container whose network it uses; empty if it uses none."""
    mode = str(found["HostConfig"].get("NetworkMode") or "")
    return mode.removeprefix(_JOINED) if mode.startswith(_JOINED) else ""


def ports_to_publish(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The ports of the container that it was created with. Not every network publishes them."""
    bindings = found["HostConfig"].get("PortBindings") or {}
    return tuple(sorted(name for name, wanted in bindings.items() if wanted))


def limits_of(host_config: Mapping[str, Any]) -> Limits:
    """Without those that this engine does not know."""
    limits = {name: value for name in LIMITS if (value := host_config.get(name)) is not None}
    return {**limits, RESTART_POLICY: policy_text(host_config.get(RESTART_POLICY) or {})}


def policy_text(policy: Mapping[str, Any]) -> str:
    name, count = policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0
    return f"{name}:{count}" if count else str(name)


def enforced(limits: Limits, wanted: Limits) -> Limits:
    """Without limits that were wanted and are shown as not set: the machine cannot enforce them."""
    return {
        name: value
        for name, value in limits.items()
        if name == "PidsLimit" or not wanted.get(name) or value not in (0, _UNLIMITED_SWAP)
    }


async def repair_in_place(
    engine: Engine, container_id: str, wanted: Shape, differs: Iterable[Deviation]
) -> None:
    """Without a restart. Networks are attached as Docker does it by itself. Raises EngineError."""
    kinds = {one.kind for one in differs if one.repairable}
    if kinds & {DeviationKind.NETWORK, DeviationKind.PORT}:
        await _attach(engine, container_id, wanted.networks)
    if DeviationKind.LIMIT in kinds:
        await _update_limits(engine, container_id, wanted.limits)
    if DeviationKind.NAME in kinds:
        path = f"containers/{container_id}/rename"
        await engine.call("POST", path, params={"name": wanted.name})


async def _update_limits(engine: Engine, container_id: str, limits: Limits) -> None:
    """What is 0 or empty is left as it is."""
    body: dict[str, Any] = {name: value for name, value in limits.items() if value}
    if RESTART_POLICY in body:
        name, _, count = str(body[RESTART_POLICY]).partition(":")
        body[RESTART_POLICY] = {"Name": name, "MaximumRetryCount": int(count or 0)}
    path = f"containers/{container_id}/update"
    await engine.call("POST", path, body=body, deadline=_DEADLINE_SECONDS)


async def _attach(engine: Engine, container_id: str, networks: Iterable[str]) -> None:
    """Its ports are published again too."""
    for network in networks:
        with suppress(EngineError):  # an endpoint that is half gone would keep the new one away
            body = {"Container": container_id, "Force": True}
            await engine.call("POST", f"networks/{network}/disconnect", body=body)
        path, body = f"networks/{network}/connect", {"Container": container_id}
        await engine.call("POST", path, body=body, deadline=_DEADLINE_SECONDS)
