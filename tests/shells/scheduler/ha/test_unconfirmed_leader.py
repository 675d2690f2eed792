"""A leader whose lease was not confirmed in time: what it sends and acknowledges."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import grpc

from persys.infra.clock import SystemClock
from persys.model.cluster import Leader
from persys.scheduler.app import Scheduler
from persys.scheduler.ha.leader_lease import LeaderLease
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Record, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import records
from shells.scheduler.harness import a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore


class SlowLeaderKeyStore(FaultyStore):
    """Reads of the leader key wait for `answers`: the lease is not confirmed meanwhile."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(SystemClock().monotonic))
        self.answers = asyncio.Event()
        self.answers.set()

    async def get(self, key: str) -> Record | None:
        if key == keys.LEADER:
            await self.answers.wait()
        return await super().get(key)


async def test_orders_are_sent_when_the_lease_is_confirmed_again() -> None:
    """Without waiting for the resync, which runs once an hour here."""
    store = SlowLeaderKeyStore()
    hour = timedelta(hours=1)
    settings = fast_settings(reconcile_interval=hour, drift_detect_interval=hour)
    async with a_cluster(store, settings) as cluster:
        node = await cluster.join()
        store.answers.clear()

        async def is_unconfirmed() -> bool:
            return not cluster.app.leader_lease.is_confirmed

        await eventually(is_unconfirmed, lambda: "the lease to be unconfirmed")
        assert (await cluster.control.apply("web")).success

        async def is_idle() -> bool:
            return not cluster.app.reconciler.depth() and not cluster.app.dispatcher.depth()

        await eventually(is_idle, lambda: "the order to be dropped")
        assert not node.agent.applies
        store.answers.set()

        await cluster.control.until("web", "Running")
    await store.store.close()


class RecordedLease(LeaderLease):
    checks = 0

    async def check(self) -> None:
        RecordedLease.checks += 1
        await super().check()


class CheckingScheduler(Scheduler):
    leader_lease_type = RecordedLease


async def test_a_replaced_leader_does_not_acknowledge_a_request_that_changes_nothing() -> None:
    """Another leader may have stopped the workload meanwhile."""
    store = SlowLeaderKeyStore()
    async with a_cluster(store, fast_settings(), scheduler=CheckingScheduler) as cluster:
        await cluster.control.apply("web")
        store.answers.clear()

        async def is_unconfirmed() -> bool:
            return not cluster.app.leader_lease.is_confirmed

        await eventually(is_unconfirmed, lambda: "the lease to be unconfirmed")
        await store.store.commit([Unit(puts={keys.LEADER: records.encode(Leader("other"))})])
        before = RecordedLease.checks
        async with asyncio.TaskGroup() as group:
            again = group.create_task(refused(cluster.control.apply("web")))

            async def is_decided() -> bool:
                return again.done() or RecordedLease.checks > before

            await eventually(is_decided, lambda: "the request to be decided")
            store.answers.set()

        assert again.result()
        await cluster.ended()
    await store.store.close()


async def refused(call: Awaitable[pb.ApplyWorkloadResponse]) -> bool:
    try:
        return not (await call).success
    except grpc.aio.AioRpcError:
        return True
