"""Reads the networks, ports, limits and name of a container, and repairs deviations without a restart.

`NetworkMode` and `PortBindings` show how a container was created, even after it was disconnected. The actual
state is in `NetworkSettings`; a restart does not restore it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from persys.agent.runtimes.docker.engine import Engine, EngineError
from persys.core.agent.deviations import Deviation, DeviationKind, Shape

RESTART_POLICY = "RestartPolicy"
# Limits that `docker update` can change, by Docker's names.
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
    """The current shape of a container. A network counts only with an endpoint."""
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
    """The network that it was created in; empty without a network of its own."""
    mode = str(found["HostConfig"].get("NetworkMode") or "default")
    if mode in _WITHOUT_NETWORK or mode.startswith(_JOINED):
        return ()
    return ("bridge" if mode == "default" else mode,)


def joined_container(found: Mapping[str, Any]) -> str:
    """The id of the container whose network it shares, or ""."""
    mode = str(found["HostConfig"].get("NetworkMode") or "")
    return mode.removeprefix(_JOINED) if mode.startswith(_JOINED) else ""


def ports_to_publish(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The container ports of its create body. Not every network publishes them."""
    bindings = found["HostConfig"].get("PortBindings") or {}
    return tuple(sorted(name for name, wanted in bindings.items() if wanted))


def limits_of(host_config: Mapping[str, Any]) -> Limits:
    """The limits that this engine reports."""
    limits = {name: value for name in LIMITS if (value := host_config.get(name)) is not None}
    return {**limits, RESTART_POLICY: policy_text(host_config.get(RESTART_POLICY) or {})}


def policy_text(policy: Mapping[str, Any]) -> str:
    name, count = policy.get("Name") or "no", policy.get("MaximumRetryCount") or 0
    return f"{name}:{count}" if count else str(name)


def enforceable_limits(limits: Limits, wanted: Limits) -> Limits:
    """Without requested limits that Docker reports as unset: the host cannot enforce them."""
    return {
        name: value
        for name, value in limits.items()
        if name == "PidsLimit" or not wanted.get(name) or value not in (0, _UNLIMITED_SWAP)
    }


async def repair_in_place(
    engine: Engine,
    container_id: str,
    wanted: Shape,
    differs: Iterable[Deviation],
    endpoints: Mapping[str, Mapping[str, Any]],
) -> None:
    """Repair deviations without a restart. Raises EngineError.

    `endpoints`: the configuration of endpoints with a given address, by network.
    """
    kinds = {one.kind for one in differs if one.repairable}
    if kinds & {DeviationKind.NETWORK, DeviationKind.PORT}:
        await _attach(engine, container_id, wanted.networks, endpoints)
    if DeviationKind.LIMIT in kinds:
        await _update_limits(engine, container_id, wanted.limits)
    if DeviationKind.NAME in kinds:
        path = f"containers/{container_id}/rename"
        await engine.call("POST", path, params={"name": wanted.name})


async def _update_limits(engine: Engine, container_id: str, limits: Limits) -> None:
    """Set the limits. Values of 0 or "" are not changed."""
    body: dict[str, Any] = {name: value for name, value in limits.items() if value}
    if RESTART_POLICY in body:
        name, _, count = str(body[RESTART_POLICY]).partition(":")
        body[RESTART_POLICY] = {"Name": name, "MaximumRetryCount": int(count or 0)}
    path = f"containers/{container_id}/update"
    await engine.call("POST", path, body=body, deadline=_DEADLINE_SECONDS)


async def connect(
    engine: Engine, container_id: str, network: str, endpoint: Mapping[str, Any] | None
) -> None:
    """Connect a container to a network. Raises EngineError."""
    body: dict[str, Any] = {"Container": container_id}
    if endpoint is not None:
        body["EndpointConfig"] = endpoint
    path = f"networks/{network}/connect"
    await engine.call("POST", path, body=body, deadline=_DEADLINE_SECONDS)


async def _attach(
    engine: Engine,
    container_id: str,
    networks: Iterable[str],
    endpoints: Mapping[str, Mapping[str, Any]],
) -> None:
    """Connect the container to the networks, which also publishes its ports again."""
    for network in networks:
        with suppress(EngineError):  # a stale endpoint would block the new one
            body = {"Container": container_id, "Force": True}
            await engine.call("POST", f"networks/{network}/disconnect", body=body)
        await connect(engine, container_id, network, endpoints.get(network))
