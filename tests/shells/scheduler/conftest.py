"""A scheduler per test, with a store that the test can make fail."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from persys.infra.clock import SystemClock
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from root_ca import RevocationList, Root
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """Parametrize it indirectly with a dict to override the settings of `fast_settings`."""
    changes: dict[str, Any] = getattr(request, "param", {})
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(**changes)) as cluster:
        yield cluster
    await store.store.close()


@pytest.fixture
async def secure(root: Root, listed: RevocationList) -> AsyncIterator[Cluster]:
    """With TLS, a list of revoked certificates, and an admin as its user."""
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    tls = root.tls(Role.SCHEDULER, "s1", lists=[listed.read_often()])
    async with a_cluster(
        store, fast_settings(), tls=tls, user=root.tls(Role.ADMIN, "me")
    ) as running:
        yield running
    await store.store.close()
