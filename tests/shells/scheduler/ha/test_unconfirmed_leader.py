"""A leader whose lease was not confirmed in time sends no order, and sends the held orders afterwards."""

import asyncio
from datetime import timedelta

from persys.infra.clock import SystemClock
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Record
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
