"""The capabilities that this node registers. Collected again before each full heartbeat."""

from persys.agent.ports import Machine, Volumes
from persys.agent.runtimes.compose.detect import has_git
from persys.agent.runtimes.detect import NodeRuntimes
from persys.agent.settings import AgentSettings
from persys.model import feature
from persys.model.node import Capabilities, StoragePool
from persys.model.resources import Resources
from persys.model.spec import WorkloadType


def capabilities_of(
    settings: AgentSettings,
    runtimes: NodeRuntimes,
    machine: Machine,
    volumes: Volumes,
    pools: tuple[StoragePool, ...],
) -> Capabilities:
    return Capabilities(
        cpu_millicores=machine.cpu_millicores(),
        memory_mb=machine.memory().total_mb,
        pools=pools,
        types=frozenset(runtimes.types),
        storage_drivers=volumes.drivers,
        reserved=Resources(
            settings.system_reserve_cpu_millicores, settings.system_reserve_memory_mb
        ),
        features=_features(settings, runtimes),
    )


def _features(settings: AgentSettings, runtimes: NodeRuntimes) -> frozenset[str]:
    features = {
        feature.PUSHES_STATUS,
        feature.CONTAINER_LIMITS,
        feature.STOP_AFTER,
        feature.CREDENTIALS,
        feature.HEALTH,
    }
    if settings.allow_privileged:
        features.add(feature.PRIVILEGED)
    if WorkloadType.CONTAINER in runtimes.types:
        features.add(feature.FILES)
    if WorkloadType.COMPOSE in runtimes.types:
        features |= {feature.COMPOSE, feature.COMPOSE_PROJECT}
        features |= {feature.COMPOSE_GIT} if has_git() else set()
    if WorkloadType.VM in runtimes.types:
        features.add(feature.MACHINES)
    if runtimes.images is not None:
        features |= {f"{feature.IMAGE}{name}" for name in runtimes.images.names}
    return frozenset(features)
