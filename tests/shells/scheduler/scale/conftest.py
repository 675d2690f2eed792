"""Real stores of a module's own, and a scheduler on one that holds many records of every type."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog

from e2e.etcd import Etcd
from persys.infra.clock import SystemClock
from persys.infra.encryption import KeyFile
from persys.model.identity import Role
from persys.scheduler.app import Scheduler
from persys.scheduler.settings import SchedulerSettings
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.port import Store
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from root_ca import Root
from shells.scheduler.harness import Cluster, Control, a_cluster, fast_settings
from shells.scheduler.scale.fleet import Fleet
from shells.scheduler.scale.many_records import FULL, damage, fill, many_records, running
from shells.scheduler.scale.measured import MeasuredStore
from shells.scheduler.scale.mutations import LargeScheduler

STORES = ("sqlite", "etcd")
# The preparation of 20,000 objects takes minutes beside a busy machine.
SIZES = (
    pytest.param(10, marks=pytest.mark.full),
    1_000,
    pytest.param(20_000, marks=[pytest.mark.full, pytest.mark.timeout(900)]),
)
_prefixes = count()


def quiet_settings(**changes: Any) -> SchedulerSettings:
    """No lease expires and no resync runs unless a test wants it."""
    hour = timedelta(hours=1)
    settled = {
        "node_lease": hour,
        "node_unavailable_grace": hour,
        "reconcile_interval": hour,
        "drift_detect_interval": hour,
    }
    return fast_settings(**(settled | changes))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@asynccontextmanager
async def opened(kind: str, directory: Path, etcd: Callable[[], Etcd]) -> AsyncIterator[Store]:
    """A new, empty store of this kind."""
    store: Store
    if kind == "etcd":
        # The tests themselves read many records again and again, also on a busy machine.
        options = EtcdOptions(
            (etcd().endpoint,), prefix=f"/scale-{next(_prefixes)}", deadline_seconds=30
        )
        store = await EtcdStore.open(options)
    else:
        store = await SqliteStore.open(directory / "store.db", monotonic=SystemClock().monotonic)
    yield store
    await store.close()


@asynccontextmanager
async def a_scheduler(
    store: MeasuredStore, fleet: Fleet, settings: SchedulerSettings, **more: Any
) -> AsyncIterator[Cluster]:
    """It calls the agents of the fleet without a network."""

    def made(*args: Any, **named: Any) -> Scheduler:
        named |= {"connect": fleet.connect, "connect_by_host": fleet.connect}
        return Scheduler(*args, **named)

    async with a_cluster(store, settings, scheduler=made, **more) as cluster:
        yield cluster


async def until_idle(cluster: Cluster) -> None:
    """Wait until everything that follows from the start is decided and written."""
    app = cluster.app
    quiet, before = 0, (-1, -1)
    async with asyncio.timeout(300):
        while quiet < 3:
            await asyncio.sleep(0.02)
            depths = app.reconciler.depth(), app.committer.depth(), app.dispatcher.depth()
            done = app.reconciler.steps, cluster.store.transactions
            quiet = 0 if any(depths) or done != before else quiet + 1
            before = done


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=STORES)
async def kind(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    yield request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SIZES)
async def large(
    request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LargeScheduler]:
    """TLS, because only an identified caller gets a token."""
    size: int = request.param
    directory = tmp_path_factory.mktemp("large")
    root = Root(directory)
    key_file = directory / "secrets.key"
    found = many_records(size, KeyFile(key_file).make())
    fleet = Fleet()
    for number, name in enumerate(running(FULL, size, "run")):
        if name.startswith("/workloads/"):
            fleet.agent(FULL).has(name.rpartition("/")[2], epoch=number // 3 + 1)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            opened(kind, directory, partial(request.getfixturevalue, "etcd"))
        )
        await fill(store, found)
        await damage(store, size)
        settings = quiet_settings(secrets_key_file=str(key_file))
        tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
        cluster = await stack.enter_async_context(
            a_scheduler(MeasuredStore(store), fleet, settings, tls=tls, user=user)
        )
        await until_idle(cluster)

        def stub_as(role: Role, name: str) -> AgentControlStub:
            control = Control(settings.grpc_port, root.tls(role, name))
            stack.push_async_callback(control.channel.close)
            return control.stub

        yield LargeScheduler(cluster, fleet, size, cluster.control.stub, stub_as)


@pytest.fixture(autouse=True, scope="module")
def few_logs() -> Iterator[None]:
    """A log line for each of thousands of workloads would cost more than the measured operation."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()
