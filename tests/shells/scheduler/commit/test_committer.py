"""The committer on a store with other writers, with outages, or with damaged records."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from builders import NOON
from persys.core.event_retention import EventLimits
from persys.core.recovery.mode import StoreHealthy, StoreUnreachable
from persys.errors import ConflictError, FencedError, FrozenError, InvalidError, QuarantinedError
from persys.infra.clock import SystemClock
from persys.model.event import Event, EventKind, NumberedEvent
from persys.model.ids import NodeId
from persys.model.node import RemovedNode
from persys.scheduler.commit.committer import Committer, new_commit_queue
from persys.scheduler.commit.store_watch import StoreWatch
from persys.scheduler.commit.transaction import CHANGE_RECORDS_MAX, Transaction
from persys.scheduler.commit.versions import RecordVersions
from persys.scheduler.ha.leader_key import LeaderKey
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.recovery.mode import UNWRITTEN_MAX, ModeTracker
from persys.scheduler.state.quarantine import Quarantine, Quarantined
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Outcome, Record, Snapshot, Store, Unit
from persys.wire.stored import records
from shells.scheduler.harness import DEADLINE_SECONDS, eventually
from shells.scheduler.stores import FaultyStore

LIMITS = EventLimits()
KEY = keys.removed_key(NodeId("n1"))


class LeadingCommitter:
    """A committer that leads, with its recorded callbacks."""

    def __init__(self, events: EventLimits, store: type[FaultyStore]) -> None:
        clock = SystemClock()
        self.store = store(MemoryStore(clock.monotonic))
        self.modes = ModeTracker(clock, on_normal=lambda: None)
        self.quarantine = Quarantine()
        self.reloads: list[Snapshot] = []
        self.events: list[Event] = []
        leader_key = LeaderKey(
            self.store, clock, name="me", endpoint="", new_uid=lambda: "u1", lease_seconds=0
        )
        versions, queue = RecordVersions(events), new_commit_queue()
        self.watch = StoreWatch(
            self.store,
            versions=versions,
            leader_key=leader_key,
            modes=self.modes,
            has_records=lambda: False,
            wake=queue.wake,
            on_reload=self._reload,
            on_events=self._on_events,
        )
        self.committer = Committer(
            self.store,
            clock,
            queue=queue,
            watch=self.watch,
            versions=versions,
            leader_key=leader_key,
            modes=self.modes,
            quarantine=self.quarantine,
            metrics=Metrics(),
            on_events=self._on_events,
        )

    def _on_events(self, events: list[NumberedEvent], _trimmed: list[int]) -> None:
        self.events.extend(one.event for one in events)

    async def _reload(self, snapshot: Snapshot) -> None:
        self.reloads.append(snapshot)

    async def put(self, key: str = KEY, *, number: int = 0) -> None:
        removal = RemovedNode(NodeId("n1"), NOON + timedelta(seconds=number))
        async with asyncio.timeout(DEADLINE_SECONDS):
            await self.committer.commit(Transaction(done=lambda: None, puts={key: removal}))


@asynccontextmanager
async def leading(
    events: EventLimits = LIMITS, store: type[FaultyStore] = FaultyStore
) -> AsyncIterator[LeadingCommitter]:
    created = LeadingCommitter(events, store)
    await created.watch.take_over()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(created.committer.run())
        yield created
        running.cancel()
    await created.store.store.close()


async def test_after_a_conflict_records_are_read_again_and_the_next_attempt_succeeds() -> None:
    async with leading() as created:
        await created.put()
        await created.store.store.commit(
            [Unit(puts={KEY: records.encode(RemovedNode(NodeId("n1"), NOON))})]
        )

        with pytest.raises(ConflictError):
            await created.put(number=1)
        await eventually(
            lambda: _is_true(bool(created.reloads)), lambda: "the store to be read again"
        )
        await created.put(number=2)

        stored = await created.store.get(KEY)
        assert stored is not None
        assert records.decode(stored.value, RemovedNode).removed_at == NOON + timedelta(seconds=2)


async def test_changes_queued_before_a_reload_fail_with_a_conflict() -> None:
    async with leading() as created:
        await created.put()
        await created.store.store.commit(
            [Unit(puts={KEY: records.encode(RemovedNode(NodeId("n1"), NOON))})]
        )
        created.store.commit_seconds = 0.05
        first = asyncio.ensure_future(created.put(number=1))
        await asyncio.sleep(0.02)
        second = asyncio.ensure_future(created.put(keys.removed_key(NodeId("n2"))))

        outcomes = await asyncio.wait_for(
            asyncio.gather(first, second, return_exceptions=True), DEADLINE_SECONDS
        )

        assert [type(outcome) for outcome in outcomes] == [ConflictError, ConflictError]


async def test_after_any_number_of_outages_the_store_is_written_again() -> None:
    async with leading() as created:
        for number in range(200):
            created.modes.take(StoreUnreachable(f"outage {number}"))
            created.modes.take(StoreHealthy())
        created.store.down = True
        with pytest.raises(FrozenError):
            await created.put()
        created.store.down = False

        await eventually(lambda: _is_true(not created.modes.is_frozen), lambda: "normal mode")

        await created.put()
        changes = [one for one in created.events if one.kind is EventKind.MODE_CHANGED]
        assert len(changes) == UNWRITTEN_MAX + 1
        assert "outage 0" in changes[0].message
        assert "169 earlier mode changes" in changes[-1].message


async def test_a_quarantined_record_is_neither_written_nor_deleted() -> None:
    async with leading() as created:
        created.quarantine.put(Quarantined(KEY, "removal", "damaged", replaceable=False))

        with pytest.raises(QuarantinedError, match="/removed/n1 cannot be read: damaged"):
            await created.put()
        with pytest.raises(QuarantinedError):
            await created.committer.commit(Transaction(done=lambda: None, drops=[KEY]))
        await created.put(keys.removed_key(NodeId("n2")))

        assert await created.store.get(KEY) is None
        assert KEY in created.quarantine


async def test_a_damaged_record_that_may_be_replaced_is_no_longer_quarantined_after_that() -> None:
    async with leading() as created:
        created.quarantine.put(Quarantined(KEY, "removal", "damaged", replaceable=True))

        await created.put()

        assert KEY not in created.quarantine


async def test_a_change_above_the_size_limit_is_a_defect_and_changes_nothing() -> None:
    async with leading() as created:
        many = [keys.removed_key(NodeId(f"n{number}")) for number in range(CHANGE_RECORDS_MAX + 1)]

        with pytest.raises(AssertionError, match="must be split"):
            await created.committer.commit(Transaction(done=lambda: None, drops=many))

        await created.committer.commit(Transaction(done=lambda: None, drops=many[:-1]))


async def test_a_record_that_cannot_be_stored_fails_alone_and_changes_nothing_in_memory() -> None:
    done: list[str] = []

    async with leading() as created:
        odd = RemovedNode(NodeId("\ud800"), NOON)
        with pytest.raises(InvalidError, match="cannot be stored"):
            await created.committer.commit(
                Transaction(done=lambda: done.append("odd"), puts={"/removed/odd": odd})
            )
        await created.put()

        assert done == []
        assert await created.store.get(KEY) is not None


async def test_events_beyond_their_number_are_trimmed_while_their_sources_write_more() -> None:
    """Each node has one event, so that the next event of a node replaces its own."""
    limits = EventLimits(count_max=20)
    async with leading(limits) as created:
        for _ in range(3):
            async with asyncio.TaskGroup() as group:
                for number in range(100):
                    node = f"n{number % 50}"
                    event = Event(SystemClock().now(), EventKind.NODE_READY, node_id=node)
                    change = Transaction(done=lambda: None, events=[event])
                    group.create_task(created.committer.commit(change))

        for number in range(20):  # a few are deleted with each change
            await created.put(number=number)
        stored = await created.store.read(keys.EVENTS)
        assert len(stored.records) == limits.count_max


class SlowReads(FaultyStore):
    """A read of one record ends when the test allows it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.reading, self.may_read = asyncio.Event(), asyncio.Event()
        self.may_read.set()

    async def get(self, key: str) -> Record | None:
        self.reading.set()
        await self.may_read.wait()
        return await super().get(key)


async def test_a_replaced_leader_sends_nothing_until_it_has_read_the_leader_key() -> None:
    sent = list[int]()

    async def commit_twice() -> None:
        async with leading(store=SlowReads) as made, asyncio.TaskGroup() as group:
            assert isinstance(made.store, SlowReads)
            made.store.next_leader = "other"
            await made.put()
            before = made.store.commits
            made.store.may_read.clear()
            made.store.reading.clear()
            group.create_task(made.put(number=1))
            await made.store.reading.wait()
            group.create_task(made.put(number=2))
            for _ in range(100):
                await asyncio.sleep(0)
            sent.append(made.store.commits - before)
            made.store.may_read.set()

    with pytest.raises(ExceptionGroup) as ended:
        await commit_twice()

    assert sent == [1]
    assert ended.value.subgroup(FencedError) is not None


class RefusingStore(FaultyStore):
    """Refuses every commit with this key."""

    refused = ""

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        if any(self.refused in unit.puts for unit in units):
            raise InvalidError(self.refused, "is not taken")
        return await super().commit(units, fence=fence)


async def test_a_change_that_the_store_refuses_fails_alone() -> None:
    async with leading(store=RefusingStore) as created:
        RefusingStore.refused = KEY
        names = [KEY, *(keys.removed_key(NodeId(f"other{number}")) for number in range(5))]

        outcomes = await asyncio.wait_for(
            asyncio.gather(*map(created.put, names), return_exceptions=True), DEADLINE_SECONDS
        )

        assert [type(outcome) for outcome in outcomes] == [InvalidError, *[type(None)] * 5]
        await eventually(
            lambda: _is_true(bool(created.reloads)), lambda: "the store to be read again"
        )
        await created.put(keys.removed_key(NodeId("later")))


async def _is_true(value: bool) -> bool:
    return value
