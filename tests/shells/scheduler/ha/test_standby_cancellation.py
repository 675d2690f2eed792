"""A scheduler that is cancelled ends, whatever its store does at that time."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from persys.errors import FencedError, StoreUnavailableError
from persys.infra.clock import SystemClock
from persys.model.cluster import Leader
from persys.scheduler.app import Scheduler
from persys.scheduler.auth.tls import agent_connector, leader_connector
from persys.scheduler.ha.forwarding import LeaderRouter
from persys.scheduler.ha.leader_key import LeaderKey
from persys.scheduler.ha.standby import Standby
from persys.scheduler.recovery.mode import ModeTracker
from persys.scheduler.server import SchedulerServer
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Record, Snapshot, Unit
from persys.wire.stored import records
from shells.scheduler.harness import Control, fast_settings
from shells.scheduler.replicas import until_leading
from shells.scheduler.stores import FaultyStore

STEPS_MAX = 12
DEADLINE_SECONDS = 5.0


async def a_standby(store: MemoryStore, read: asyncio.Event) -> Standby:
    """A standby of another leader. `read` is set when it has read the store."""
    clock = SystemClock()
    leader_key = LeaderKey(
        store, clock, name="me", endpoint="", new_uid=lambda: "u1", lease_seconds=15
    )
    marker = records.encode(leader_key.new_marker())
    leader = records.encode(Leader("another", "another:1"))
    await store.commit([Unit(puts={keys.CLUSTER: marker, keys.LEADER: leader})])

    async def load(_snapshot: Snapshot) -> None:
        read.set()

    return Standby(
        store,
        leader_key,
        ModeTracker(clock, on_normal=lambda: None),
        clock,
        load=load,
        take=lambda _changes: None,
        has_records=lambda: True,
        leader_changed=lambda: None,
    )


@pytest.mark.parametrize("steps", range(STEPS_MAX))
async def test_a_cancelled_standby_ends_although_its_watch_breaks(steps: int) -> None:
    """Found by seed 13: after this many loop steps the cancellation was lost."""
    store = MemoryStore(SystemClock().monotonic)
    read = asyncio.Event()
    standby = await a_standby(store, read)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(standby.until_leading())
        async with asyncio.timeout(DEADLINE_SECONDS):
            await read.wait()
        await asyncio.sleep(0)
        await store.commit([Unit(deletes=[keys.CLUSTER])])
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        ended, _ = await asyncio.wait([waiting], timeout=DEADLINE_SECONDS)
        waiting.cancel()

    assert ended


class FailsWhenCancelled(MemoryStore):
    """Its first read of the leader key does not end; when it is cancelled, it fails."""

    def __init__(self) -> None:
        super().__init__(SystemClock().monotonic)
        self.called = asyncio.Event()

    async def get(self, key: str) -> Record | None:
        if key != keys.LEADER or self.called.is_set():
            return await super().get(key)
        self.called.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreUnavailableError("the read was interrupted") from None
        return None


async def test_a_standby_leads_although_a_read_fails_at_that_time() -> None:
    """The failure of the read must not look like a cancellation of the standby."""
    store = FailsWhenCancelled()
    standby = await a_standby(store, asyncio.Event())
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(standby.until_leading())
        async with asyncio.timeout(30):
            await store.called.wait()
            await store.commit([Unit(deletes=[keys.LEADER])])
            leads = await waiting

    assert leads


class Interrupted(Scheduler):
    """A write is in progress when it is cancelled: the commit fails before its task is cancelled."""

    async def lead(self, begun: Callable[[], None] = lambda: None) -> None:
        try:
            await super().lead(begun)
        except asyncio.CancelledError:
            fenced = FencedError("this scheduler no longer leads; try again")
            raise ExceptionGroup("unhandled errors in a TaskGroup", [fenced]) from None


@pytest.mark.parametrize("shared", [False, True])
async def test_a_cancelled_leader_ends_although_a_write_is_in_progress(shared: bool) -> None:
    settings, stop = fast_settings(leader_lease=timedelta(seconds=3)), asyncio.Event()
    server = SchedulerServer(
        settings,
        FaultyStore(MemoryStore(SystemClock().monotonic)),
        SystemClock(),
        shared=shared,
        tls=None,
        router=LeaderRouter(leader_connector(None)),
        new_replica=partial(Interrupted, connect=agent_connector(None), watches_certificates=False),
    )
    running = asyncio.get_running_loop().create_task(server.run(stop))
    control = Control(settings.grpc_port)
    await control.summary()
    if shared:
        await until_leading(control)
    await control.channel.close()

    stop.set()

    async with asyncio.timeout(2 * DEADLINE_SECONDS):
        await running
