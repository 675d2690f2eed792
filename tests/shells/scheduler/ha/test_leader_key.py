"""The leader key, and the writes that are refused to a scheduler that has lost it."""

import pytest

from persys.errors import FencedError
from persys.infra.clock import SystemClock
from persys.scheduler.ha.leader_key import LeaderKey
from persys.store import keys
from persys.store.memory import MemoryStore
from shells.scheduler.stores import FaultyStore

LEASE_SECONDS = 30


def a_store() -> FaultyStore:
    return FaultyStore(MemoryStore(SystemClock().monotonic))


def a_lead(store: FaultyStore, name: str) -> LeaderKey:
    return LeaderKey(
        store,
        SystemClock(),
        name=name,
        endpoint="",
        new_uid=lambda: "u1",
        lease_seconds=LEASE_SECONDS,
    )


async def test_a_leader_whose_store_was_wiped_has_its_key_back_before_it_continues() -> None:
    store = a_store()
    own, other = a_lead(store, "me"), a_lead(store, "other")
    await own.take()
    await store.wipe()

    await own.hold_key()

    with pytest.raises(FencedError, match="me leads now"):
        await other.take()


async def test_a_scheduler_that_loses_the_election_writes_nothing() -> None:
    store = a_store()
    store.next_leader = "other"

    with pytest.raises(FencedError):
        await a_lead(store, "me").take(puts={keys.CLUSTER: b"mine"})

    assert await store.get(keys.CLUSTER) is None
