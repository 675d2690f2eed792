"""The capabilities that this node registers, with its storage pools.

They are collected again before each full heartbeat.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from persys.agent.networks.controller import NetworkController
from persys.agent.ports import Host, PoolSource, Volumes
from persys.agent.runtimes.detect import NodeRuntimes, has_git
from persys.agent.settings import AgentSettings
from persys.agent.volumes.local import DRIVER
from persys.core.agent.storage import LocalPool, as_pools
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.model import feature
from persys.model.node import Capabilities, StoragePool
from persys.model.placement import Resources
from persys.model.spec import WorkloadType

log = structlog.get_logger()

INTERVAL_SECONDS = 30.0
FIRST_REFRESH_SECONDS = 2.0
REFRESH_DEADLINE_SECONDS = 60.0
POOLS_MAX = 256


def capabilities_of(
    settings: AgentSettings,
    runtimes: NodeRuntimes,
    host: Host,
    volumes: Volumes,
    pools: tuple[StoragePool, ...],
    *,
    networks: NetworkController | None = None,
) -> Capabilities:
    """`networks`: None if this node cannot have networks."""
    return Capabilities(
        cpu_millicores=host.cpu_millicores(),
        memory_mb=host.memory().total_mb,
        pools=pools,
        types=frozenset(runtimes.types),
        storage_drivers=volumes.drivers,
        reserved=Resources(
            settings.system_reserve_cpu_millicores, settings.system_reserve_memory_mb
        ),
        features=_features(settings, runtimes)
        | ({feature.NETWORKS} if networks is not None and networks.supported else frozenset()),
        routes=networks.routes if networks is not None else (),
        tier=settings.node_tier,
        core_hour_price=settings.node_price,
    )


def _features(settings: AgentSettings, runtimes: NodeRuntimes) -> frozenset[str]:
    features = {
        feature.PUSHES_STATUS,
        feature.CONTAINER_LIMITS,
        feature.STOP_AFTER,
        feature.CREDENTIALS,
        feature.HEALTH,
        feature.ORDER_BATCHES,
        feature.RUN_ONCE,
    }
    if settings.allow_privileged:
        features.add(feature.PRIVILEGED)
    if WorkloadType.CONTAINER in runtimes.types:
        features.add(feature.FILES)
    if WorkloadType.COMPOSE in runtimes.types:
        features |= {feature.COMPOSE, feature.COMPOSE_PROJECT}
        features |= {feature.COMPOSE_GIT} if has_git() else set()
    if WorkloadType.VM in runtimes.types:
        features |= {feature.MACHINES, feature.MACHINE_HEALTH}
    if runtimes.images is not None:
        features |= {f"{feature.IMAGE}{name}" for name in runtimes.images.names}
    return frozenset(features)


class NodeCapabilities:
    """Collects what the node offers, and keeps the last result.

    Admission uses the last result: an order neither waits for the collection nor fails with it.
    """

    def __init__(self, collect: Callable[[], Capabilities]) -> None:
        self._collect = collect
        self._last = collect()

    def collect(self) -> Capabilities:
        self._last = self._collect()
        return self._last

    def allocatable(self) -> Resources:
        return self._last.allocatable


class StoragePools:
    """The local storage pool and those of libvirt, refreshed periodically."""

    def __init__(
        self,
        host: Host,
        local_root: Path,
        paths: PathCalls,
        source: Callable[[], PoolSource | None],
    ) -> None:
        """`source` returns None while this node has no libvirt."""
        self._host = host
        self._local_root = local_root
        self._paths = paths
        self._source = source
        self._disk = host.disk(local_root)
        self._others: list[LocalPool] = []

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def refresh_first(self) -> None:
        """Refresh before the first registration, but do not wait long for libvirt."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_REFRESH_SECONDS):
                await self.refresh()

    async def refresh(self) -> None:
        """Refresh all pools. A source that does not respond keeps its last values."""
        try:
            sample = partial(self._host.disk, self._local_root)
            self._disk = await self._paths.run(self._local_root, sample)
        except (OSError, PathTimeoutError) as err:
            log.debug("pools.not_looked_at", reason=str(err))
        source = self._source()
        if source is None:
            return
        try:
            async with asyncio.timeout(REFRESH_DEADLINE_SECONDS):
                self._others = (await source.local_pools())[:POOLS_MAX]
        except (RuntimeUnavailableError, TimeoutError) as err:
            log.debug("pools.not_looked_at", reason=str(err))

    def current(self) -> tuple[StoragePool, ...]:
        """The local pool comes first: it is the default."""
        local = LocalPool(DRIVER, DRIVER, self._disk.total_gb, self._disk.device)
        return as_pools([local, *self._others])
