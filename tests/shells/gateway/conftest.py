"""A gateway before a scheduler with one node, in plain text."""

from collections.abc import AsyncIterator

import pytest

from persys.infra.clock import SystemClock
from persys.store.memory import MemoryStore
from shells.gateway.town import House, a_gateway, quiet
from shells.scheduler.harness import Cluster, a_cluster, brisk
from shells.scheduler.stores import TroubledStore


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = TroubledStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, brisk()) as cluster:
        yield cluster
    await store.store.close()


@pytest.fixture
async def house(cluster: Cluster) -> AsyncIterator[House]:
    address = f"127.0.0.1:{cluster.settings.grpc_port}"
    async with a_gateway(quiet(scheduler_addr=(address,))) as house:
        yield house
