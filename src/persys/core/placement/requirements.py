"""The requirements of a workload: amounts, host ports, traits and rules.

The name of a Compose project is exclusive like a host port: only one workload of a node can have it.

A trait is a word such as `type:container` or `driver:nfs` that a node has or does not have. Types, storage
drivers, storage pools and features are traits, so one filter checks them all and names the missing one. Rules
refer to labels; the facts of a node are labels with the prefix `node.`.
"""

from dataclasses import dataclass

from persys.model import feature
from persys.model.node import Capabilities, Node
from persys.model.placement import DISKS, NO_RULES, Draws, HostPort, Resources, Rules
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    HealthCheck,
    Login,
    Port,
    PullPolicy,
    RestartPolicy,
    Spec,
    VMSpec,
    is_address,
    local_gb,
    managed_volumes_of,
    type_of,
)
from persys.model.workload import Workload


@dataclass(frozen=True, slots=True)
class TierAccess:
    """Whether a workload may use nodes of tiers above 0."""

    offload: bool = False
    preferred: bool = False  # before tier 0
    why_not: str = "offload is never"
    change: str = "set offload: when-full"  # what would allow it; empty: nothing
    waits: bool = False  # it may use them after it has waited longer


HOME_ONLY = TierAccess()


@dataclass(frozen=True, slots=True)
class Requirements:
    resources: Resources
    traits: frozenset[str] = frozenset()
    host_ports: frozenset[HostPort] = frozenset()
    rules: Rules = NO_RULES
    pools: Draws = ()  # the part of the disk in named pools
    tiers: TierAccess = HOME_ONLY


def requirements_of(workload: Workload, tiers: TierAccess = HOME_ONLY) -> Requirements:
    spec = workload.spec
    traits = {f"type:{type_of(spec)}"}
    host_ports: frozenset[HostPort] = frozenset()
    volumes_gb = 0
    pools: dict[str, int] = {}
    match spec:
        case ContainerSpec():
            traits |= _container_features(spec)
            host_ports = _host_ports(spec.ports)
        case ComposeSpec():
            traits |= _stack_features(spec)
            host_ports = _host_ports(spec.needs.ports)
            if spec.project_name:
                host_ports |= {HostPort.of_project(spec.project_name)}
        case VMSpec():
            traits |= _machine_features(spec)
            traits |= {f"pool:{disk.pool_name}" for disk in spec.disks if disk.pool_name}
            volumes_gb = sum(disk.size_gb for disk in spec.disks)
            pools = _disks_by_pool(spec)
    volumes = managed_volumes_of(spec)
    traits |= {f"driver:{volume.driver}" for volume in volumes}
    volumes_gb += local_gb(volumes)
    if workload.stop_after_seconds:
        traits.add(f"feature:{feature.STOP_AFTER}")
    if workload.runs_once or workload.run_deadline_seconds:
        traits.add(f"feature:{feature.RUN_ONCE}")
    if workload.networks:
        traits.add(f"feature:{feature.NETWORKS}")
    # A stated disk size covers the volumes; they count only beyond it.
    extra_gb = max(0, volumes_gb - workload.resources.disk_gb)
    return Requirements(
        workload.resources + Resources(disk_gb=extra_gb),
        frozenset(traits),
        host_ports,
        workload.rules,
        tuple(sorted(pools.items())),
        tiers,
    )


def traits_of(capabilities: Capabilities) -> frozenset[str]:
    return frozenset(
        {f"type:{kind}" for kind in capabilities.types}
        | {f"driver:{driver}" for driver in capabilities.storage_drivers}
        | {f"pool:{pool.name}" for pool in capabilities.pools}
        | {_feature_trait(name) for name in capabilities.features}
    )


def facts_of(node: Node) -> dict[str, str]:
    """The node's labels, and its facts under keys that begin with `node.`; facts win."""
    has = node.capabilities
    return {
        **node.labels,
        "node.id": node.id,
        "node.cpu_millicores": str(has.total.cpu_millicores),
        "node.memory_mb": str(has.total.memory_mb),
        "node.disk_gb": str(has.total.disk_gb),
        "node.agent_version": node.agent_version,
        "node.types": ",".join(sorted(has.types)),
    }


def holds_data(workload: Workload) -> bool:
    """Whether the workload has data on its node that a second copy would miss or damage."""
    return has_data(workload.spec)


def is_exclusive(workload: Workload) -> bool:
    """Whether a second copy must never run beside the first: it has data, or runs once."""
    return workload.runs_once or holds_data(workload)


def has_data(spec: Spec) -> bool:
    """The same for a spec."""
    match spec:
        case VMSpec():
            return True
        case ContainerSpec():
            return bool(spec.managed_volumes) or any(not v.read_only for v in spec.volumes)
        case ComposeSpec():
            return spec.needs.holds_data


def _disks_by_pool(spec: VMSpec) -> dict[str, int]:
    """A disk with a path is not in a pool; its size counts with the rest."""
    pools: dict[str, int] = {}
    for disk in spec.disks:
        if disk.size_gb and not disk.path:
            pool = disk.pool_name or DISKS
            pools[pool] = pools.get(pool, 0) + disk.size_gb
    return pools


def _host_ports(ports: tuple[Port, ...]) -> frozenset[HostPort]:
    return frozenset(HostPort(port.host_port, port.protocol) for port in ports if port.host_port)


def _stack_features(spec: ComposeSpec) -> set[str]:
    features = set()
    if spec.source_type == "git":
        features.add(f"feature:{feature.COMPOSE_GIT}")
    if spec.needs.privileged:
        features.add(f"feature:{feature.PRIVILEGED}")
    if spec.project_name:
        features.add(f"feature:{feature.COMPOSE_PROJECT}")
    # A plain agent would ignore these silently.
    if spec.git_path or spec.git_credential or spec.image_credential or spec.delete_volumes:
        features.add(f"feature:{feature.COMPOSE}")
    return features


def _machine_features(spec: VMSpec) -> set[str]:
    features = set()
    if spec.os_image and not is_address(spec.os_image):
        features.add(f"{feature.IMAGE}{spec.os_image}")
    # A plain agent would ignore these silently.
    if (
        is_address(spec.os_image)
        or spec.restart != RestartPolicy()
        or spec.stop_grace_seconds
        or spec.login != Login()
        or any(network.gateway or network.nameservers for network in spec.networks)
    ):
        features.add(f"feature:{feature.MACHINES}")
    if spec.health != HealthCheck():
        features.add(f"feature:{feature.MACHINE_HEALTH}")
    return features


def _feature_trait(name: str) -> str:
    """The images of a node are traits of their own kind."""
    return name if name.startswith(feature.IMAGE) else f"feature:{name}"


def _container_features(spec: ContainerSpec) -> set[str]:
    features = set()
    if spec.privileged:
        features.add(f"feature:{feature.PRIVILEGED}")
    # A plain agent would ignore these silently, so only agents with the feature are eligible.
    if (
        spec.pids_max
        or spec.stop_grace_seconds
        or spec.init
        or spec.pull_policy is not PullPolicy.IF_NOT_PRESENT
    ):
        features.add(f"feature:{feature.CONTAINER_LIMITS}")
    if spec.image_credential:
        features.add(f"feature:{feature.CREDENTIALS}")
    if spec.health != HealthCheck():
        features.add(f"feature:{feature.HEALTH}")
    if spec.files:
        features.add(f"feature:{feature.FILES}")
    return features
