"""Maps orders to Docker's names, labels and create bodies, and containers back to workloads."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from persys.agent.networks.members import Endpoint
from persys.agent.runtimes.docker.deviations import (
    LIMITS,
    RESTART_POLICY,
    Limits,
    enforceable_limits,
    first_network,
    policy_text,
    ports_to_publish,
    shape_of,
)
from persys.core.agent.deviations import Deviation, Shape, deviations
from persys.core.agent.health import Health, timing_of
from persys.core.agent.progress import Artefact, Condition
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, HealthCheck, HealthType, Port
from persys.model.workload import Order

LABEL_PREFIX = "persys."
WORKLOAD_LABEL = "persys.workload_id"
REVISION_LABEL = "persys.revision_id"
NETWORK_LABEL = "persys.network_id"  # of a network across nodes
SERVICE_LABEL = "com.docker.compose.service"  # written by Compose

# Docker writes nanoseconds; datetime parses microseconds.
_NANOSECONDS = re.compile(r"(\.\d{6})\d+")
_NEVER_YEAR = 1
_HEALTH = {health.value: health for health in Health}
_AILMENT_LENGTH_MAX = 512
_SECOND = 1_000_000_000


class OwnerLabels(Struct, frozen=True):
    """The labels and names of this agent's containers. Several agents may share one Docker."""

    cluster_id: str
    node_id: NodeId

    def name(self, workload_id: WorkloadId) -> str:
        return f"persys-{workload_id}-{self.mark}"

    @property
    def mark(self) -> str:
        """Distinguishes this agent from others on the same host."""
        return sha256(f"{self.cluster_id}/{self.node_id}".encode()).hexdigest()[:6]

    def network_name(self, network_id: str) -> str:
        """The name of a network across nodes in Docker."""
        return f"persys-network-{network_id}-{self.mark}"

    @property
    def labels(self) -> dict[str, str]:
        return {
            "persys.managed": "true",
            "persys.cluster_id": self.cluster_id,
            "persys.node_id": self.node_id,
        }

    def filters(self, **labels: str) -> list[str]:
        return [f"{name}={value}" for name, value in (self.labels | labels).items()]

    def owns(self, labels: Mapping[str, str], workload_id: WorkloadId) -> bool:
        wanted = self.labels | {WORKLOAD_LABEL: workload_id}
        return all(labels.get(name) == value for name, value in wanted.items())


def create_body(
    order: Order,
    owner: OwnerLabels,
    volumes: Mapping[str, Path],
    *,
    files: Mapping[str, Path],
    pids_max: int,
    endpoints: Sequence[Endpoint] = (),
) -> dict[str, Any]:
    """`volumes`: host paths by volume name. `files`: host paths by path in the container.

    `endpoints`: the networks that it joins. Docker accepts one in a create body; the others follow before the
    start.
    """
    spec = container_spec(order)
    labels = {
        **spec.labels,
        **owner.labels,
        WORKLOAD_LABEL: order.workload_id,
        REVISION_LABEL: order.revision,
        "persys.epoch": str(order.epoch),
    }
    body: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "Labels": labels,
        "ExposedPorts": {_port_name(port): {} for port in spec.ports},
        "HostConfig": _host_config(spec, pids_max)
        | {"Mounts": _mounts(spec, volumes, files), "RestartPolicy": _restart(order)},
    }
    if endpoints:
        first = owner.network_name(endpoints[0].network.network_id)
        body["HostConfig"] |= {"NetworkMode": first, "Dns": [endpoints[0].bridge_address]}
        body["NetworkingConfig"] = {
            "EndpointsConfig": {first: endpoint_config(endpoints[0], order.workload_id)}
        }
    command = [*spec.command, *spec.args]
    if command:
        body["Cmd"] = command
    if (check := _health_check(spec.health)) is not None:
        body["Healthcheck"] = check
    return body


def endpoint_config(endpoint: Endpoint, *aliases: str) -> dict[str, Any]:
    """How Docker attaches a container to a network."""
    return {
        "IPAMConfig": {"IPv4Address": endpoint.address},
        "MacAddress": endpoint.mac,
        "Aliases": list(aliases),
    }


def container_spec(order: Order) -> ContainerSpec:
    assert isinstance(order.spec, ContainerSpec), "this runtime gets containers only"
    return order.spec


def artefact(found: Mapping[str, Any]) -> Artefact:
    state, network = found["State"], found["NetworkSettings"]
    health = state.get("Health") or {}
    labels = found["Config"].get("Labels") or {}
    return Artefact(
        id=found["Id"],
        name=found["Name"].removeprefix("/"),
        condition=Condition(state["Status"]),
        revision=Revision(labels.get(REVISION_LABEL, "")),
        image=found["Config"]["Image"],
        exit_code=state["ExitCode"],
        oom_killed=state.get("OOMKilled", False),
        restart_count=found.get("RestartCount", 0),
        started_at=_instant(state["StartedAt"]),
        finished_at=_instant(state["FinishedAt"]),
        ports=_published(network.get("Ports") or {}),
        error=state.get("Error", ""),
        address=_address(network),
        health=_HEALTH.get(health.get("Status", "")),
        health_error=_health_error(health.get("Log") or ()),
    )


def wanted_shape(found: Mapping[str, Any], order: Order, owner: OwnerLabels) -> Shape:
    """The shape that a container of this order was created with."""
    joined = tuple(owner.network_name(network_id) for network_id in order.networks)
    return Shape(
        name=owner.name(order.workload_id),
        networks=joined or first_network(found),
        ports=ports_to_publish(found),
        limits=_limits(order),
    )


def deviations_of(found: Mapping[str, Any], wanted: Shape) -> tuple[Deviation, ...]:
    seen = shape_of(found)
    return deviations(wanted, replace(seen, limits=enforceable_limits(seen.limits, wanted.limits)))


def _limits(order: Order) -> Limits:
    """Limits to compare. A default of the node is not compared: existing containers keep theirs."""
    spec = container_spec(order)
    limits: Limits = dict.fromkeys((name for name in LIMITS if name != "CpusetCpus"), 0)
    limits |= {name: value for name, value in _host_config(spec, 0).items() if name in LIMITS}
    limits |= {"CpusetCpus": "", RESTART_POLICY: policy_text(_restart(order))}
    if not spec.pids_max:
        del limits["PidsLimit"]
    return limits


def _host_config(spec: ContainerSpec, pids_max: int) -> dict[str, Any]:
    return {
        "NanoCpus": spec.cpu_millicores * 1_000_000,
        "CpuShares": spec.cpu_shares,
        "Memory": spec.memory_bytes,
        # Docker's default would allow the same amount of swap in addition.
        "MemorySwap": spec.memory_swap_bytes or spec.memory_bytes,
        "PidsLimit": spec.pids_max or pids_max,
        "PortBindings": _bindings(spec.ports),
        "Privileged": spec.privileged,
        "Init": spec.init or None,  # None: the default of the engine
    }


def _health_check(check: HealthCheck) -> dict[str, Any] | None:
    """Checks that Docker runs, also without the agent. The agent runs http and tcp checks."""
    match check.type:
        case HealthType.EXEC:
            timing = timing_of(check)
            return {
                "Test": ["CMD", *check.command],
                "Interval": _nanoseconds(timing.interval),
                "Timeout": _nanoseconds(timing.timeout),
                "Retries": timing.retries,
                "StartPeriod": _nanoseconds(timing.start_period),
            }
        case HealthType.IMAGE if check == HealthCheck(restart_unhealthy=check.restart_unhealthy):
            return None
        case HealthType.IMAGE:  # 0: the value of the image
            return {
                "Interval": check.interval_seconds * _SECOND,
                "Timeout": check.timeout_seconds * _SECOND,
                "Retries": check.retries,
                "StartPeriod": check.start_period_seconds * _SECOND,
            }
        case _:
            return {"Test": ["NONE"]}


def _nanoseconds(span: timedelta) -> int:
    return round(span.total_seconds() * _SECOND)


def _health_error(log: Sequence[Mapping[str, Any]]) -> str:
    """The output of the last check if it failed, otherwise ""."""
    if not log or log[-1].get("ExitCode") == 0:
        return ""
    last = log[-1]
    output = " ".join(str(last.get("Output", "")).split())[:_AILMENT_LENGTH_MAX]
    return output or f"the health check exited with code {last.get('ExitCode')}"


def _address(network: Mapping[str, Any]) -> str:
    """The IP address of the container on the host; "" if it has none."""
    joined = (network.get("Networks") or {}).values()
    return str(network.get("IPAddress") or next((one["IPAddress"] for one in joined), ""))


def _restart(order: Order) -> dict[str, Any]:
    if order.stop_after_seconds or order.run_once:
        # After a reboot Docker would start it before the agent knows how long the scheduler is lost, or that
        # it has run already.
        return {"Name": "no"}
    policy = container_spec(order).restart
    if policy.name == "on-failure":
        return {"Name": policy.name, "MaximumRetryCount": policy.retries_max}
    return {"Name": policy.name}


def _bindings(ports: tuple[Port, ...]) -> dict[str, list[dict[str, str]]]:
    bindings: dict[str, list[dict[str, str]]] = {}
    for port in ports:
        host_port = str(port.host_port) if port.host_port else ""
        bindings.setdefault(_port_name(port), []).append({"HostPort": host_port})
    return bindings


def _mounts(
    spec: ContainerSpec, volumes: Mapping[str, Path], files: Mapping[str, Path]
) -> list[dict[str, Any]]:
    binds = [(mount.host_path, mount.container_path, mount.read_only) for mount in spec.volumes]
    managed = [
        (str(volumes[volume.name]), volume.mount_path, volume.read_only)
        for volume in spec.managed_volumes
    ]
    small = [(str(path), target, True) for target, path in files.items()]
    return [
        {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
        for source, target, read_only in binds + managed + small
    ]


def _port_name(port: Port) -> str:
    return f"{port.container_port}/{port.protocol}"


def _published(ports: Mapping[str, list[dict[str, str]] | None]) -> tuple[str, ...]:
    """`8080->80/tcp`, once for both address families. Docker may choose another port for IPv6, which is
    reported as `[::]:8081->80/tcp`."""
    found: set[str] = set()
    for name, bindings in ports.items():
        known = bindings or ()
        four = {one["HostPort"] for one in known if ":" not in one.get("HostIp", "")}
        six = {one["HostPort"] for one in known} - four
        found |= {f"{port}->{name}" for port in four or six}
        found |= {f"[::]:{port}->{name}" for port in six if four}
    return tuple(sorted(found))


def _instant(text: str) -> datetime | None:
    found = datetime.fromisoformat(_NANOSECONDS.sub(r"\1", text))
    return found.astimezone(UTC) if found.year > _NEVER_YEAR else None
