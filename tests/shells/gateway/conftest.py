"""Fixtures: a gateway in front of a scheduler with one node, with and without TLS."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from persys.infra.clock import SystemClock
from persys.infra.net.listener import HttpLimits
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from root_ca import Root
from shells.gateway.running_gateway import LIMITS, RunningGateway, a_gateway, quiet
from shells.scheduler.calls import World, a_world
from shells.scheduler.calls import quiet as quiet_scheduler
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        yield cluster
    await store.store.close()


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[RunningGateway]:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    async with a_gateway(quiet(scheduler_addr=(address,))) as api:
        yield api


@pytest.fixture
async def secure_scheduler(root: Root) -> AsyncIterator[Cluster]:
    """A scheduler with TLS, and an admin client."""
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    scheduler, admin = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, fast_settings(), tls=scheduler, user=admin) as cluster:
        yield cluster
    await store.store.close()


@pytest.fixture
async def secure_api(
    request: pytest.FixtureRequest, root: Root, secure_scheduler: Cluster
) -> AsyncIterator[RunningGateway]:
    """A gateway with TLS in front of it. Parametrize it indirectly for other limits."""
    address = f"127.0.0.1:{secure_scheduler.settings.grpc_port}"
    settings = quiet(insecure=False, scheduler_addr=(address,))
    limits: HttpLimits = getattr(request, "param", LIMITS)
    async with a_gateway(settings, tls=root.tls(Role.GATEWAY, "g1"), limits=limits) as api:
        yield api


@pytest.fixture
async def world(root: Root, tmp_path: Path) -> AsyncIterator[World]:
    """A scheduler with TLS and one node, without background work."""
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = quiet_scheduler(secrets_key_file=str(tmp_path / "key"))
    scheduler, admin = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, settings, tls=scheduler, user=admin) as cluster:
        yield await a_world(cluster, root.tls(Role.AGENT, "n1"))
    await store.store.close()
