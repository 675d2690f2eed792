"""Polls of stale copies on nodes that do not push their status, in virtual time."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from builders import NOON, an_assignment
from persys.core.reconcile.effects import Effect, PollStatus, Remove
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Tombstone
from persys.scheduler.app import Scheduler
from persys.scheduler.drift.tombstones import TombstoneCleaner
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.virtual_loop import VirtualLoop
from persys.store.memory import MemoryStore

N1 = NodeId("n1")


def polls_during(seconds: float, act: Callable[[TombstoneCleaner], None]) -> list[float]:
    """When a stale copy on n1 is polled. `act` is called every 0.1 s; the poll interval is 1 s."""
    sent: list[tuple[float, Effect]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        clock = WallClock().as_read()
        scheduler = Scheduler(SchedulerSettings(), MemoryStore(loop.time), clock, name="s1")
        cluster = scheduler.cluster
        cleaner = TombstoneCleaner(
            cluster,
            scheduler.committer,
            clock,
            capacity_freed=lambda _node_id: None,
            submit_effect=lambda effect: sent.append((loop.time(), effect)),
            wake=lambda _workload_id: None,
            poll_interval=timedelta(seconds=1),
        )
        cluster.put_node(Node(N1, Capabilities(4000, 8192), "n1:1", NOON), lease_until=0.0)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(cleaner.run())
            await asyncio.sleep(10)
            stale = Tombstone(an_assignment(name=WorkloadId("web")), NOON)
            cluster.put_tombstone(stale)
            cleaner.request_removal(stale)
            while loop.time() < 10 + seconds:
                await asyncio.sleep(0.1)
                act(cleaner)
            running.cancel()

    loop = VirtualLoop()
    loop.run_until_complete(scenario())
    loop.close()
    assert isinstance(sent[0][1], Remove)
    return [round(at - 10, 1) for at, effect in sent if isinstance(effect, PollStatus)]


def test_a_removal_is_polled_once_per_interval_after_its_own_poll() -> None:
    assert polls_during(3.5, lambda _cleaner: None) == [1.0, 2.0, 3.0]


def test_further_requests_cause_no_additional_polls() -> None:
    assert polls_during(2.5, lambda cleaner: cleaner.request_removals(N1)) == [1.0, 2.0]
