"""A standby that is told to end does so, whatever its store does at that moment."""

import asyncio

import pytest

from persys.infra.clock import SystemClock
from persys.model.leader import Leader
from persys.scheduler.lead import Lead
from persys.scheduler.modes import Modes
from persys.scheduler.standby import Standby
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Unit
from persys.wire import records

STEPS_MAX = 12
DEADLINE_SECONDS = 5.0


@pytest.mark.parametrize("steps", range(STEPS_MAX))
async def test_a_standby_ends_although_its_watch_breaks_meanwhile(steps: int) -> None:
    """Found by seed 13: after so many steps of the loop the cancellation was lost."""
    clock = SystemClock()
    store = MemoryStore(clock.monotonic)
    lead = Lead(store, clock, new_uid=lambda: "u1", lease_seconds=15)
    marker = records.encode(lead.new_marker())
    leader = records.encode(Leader("another", "another:1"))
    await store.commit([Unit(puts={keys.CLUSTER: marker, keys.LEADER: leader})])
    read = asyncio.Event()
    standby = Standby(
        store,
        lead,
        Modes(clock, on_normal=lambda: None),
        clock,
        load=lambda _snapshot: read.set(),
        take=lambda _changes: None,
        remembers=lambda: True,
        notice=lambda: None,
    )
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
