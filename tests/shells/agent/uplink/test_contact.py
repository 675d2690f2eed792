"""Lost contact with the scheduler, measured across restarts and clock changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import a_supervisor
from persys.agent.journal.records import Entry, JournalChange, ReportedStatus
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.uplink.contact import SchedulerContact
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, VolumeMount, WorkloadType
from persys.model.status import Actual
from persys.model.workload import Desired, Order

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
ORDER = Order(
    WorkloadId("db"),
    WorkloadType.CONTAINER,
    Revision("r1"),
    1,
    Desired.RUNNING,
    ContainerSpec("db"),
    stop_after_seconds=60,
)
ENTRY = Entry(ORDER, 1, ActionId("a1"), NOON, NOON, ReportedStatus(Actual.RUNNING, NOON))


class SetClock:
    """A clock that the test sets."""

    def __init__(self, *, seconds: float = 1000.0, wall: datetime = NOON) -> None:
        self.seconds = seconds
        self.wall = wall

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)


@asynccontextmanager
async def a_state(path: Path) -> AsyncIterator[Journal]:
    journal = Journal(path, cluster_id="c", node_id=NodeId("n1"))
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(journal.run(a_supervisor(), Metrics().journal.written))
        yield journal
        writing.cancel()
    journal.close()


async def receive_acknowledgement(path: Path, clock: SetClock) -> None:
    """An agent receives an acknowledgement, and stops."""
    async with a_state(path) as journal:
        await journal.commit(JournalChange(entry=ENTRY))
        contact = SchedulerContact(journal, clock, wake=lambda _name: None)
        await contact.acknowledged(sent=clock.monotonic(), sent_at=clock.now())
        assert not contact.must_stop(ORDER)


async def is_lost_after_a_restart(path: Path, clock: SetClock) -> bool:
    async with a_state(path) as journal:
        return SchedulerContact(journal, clock, wake=lambda _name: None).must_stop(ORDER)


async def test_lost_contact_counts_from_the_send_time_of_the_last_acknowledged_heartbeat(
    tmp_path: Path,
) -> None:
    clock = SetClock()
    async with a_state(tmp_path / "state.db") as journal:
        contact = SchedulerContact(journal, clock, wake=lambda _name: None)
        sent = clock.monotonic()
        clock.advance(5)
        await contact.acknowledged(sent=sent, sent_at=NOON)
        clock.advance(54)
        assert not contact.must_stop(ORDER)
        clock.advance(1)
        assert contact.must_stop(ORDER)


@pytest.mark.parametrize(("down_seconds", "lost"), [(50, False), (60, True)])
async def test_lost_contact_keeps_counting_across_a_restart(
    tmp_path: Path, down_seconds: int, lost: bool
) -> None:
    path, clock = tmp_path / "state.db", SetClock()
    await receive_acknowledgement(path, clock)
    rebooted = SetClock(seconds=3.0, wall=clock.wall + timedelta(seconds=down_seconds))

    assert await is_lost_after_a_restart(path, rebooted) is lost


async def test_a_clock_that_was_set_back_counts_as_expired(tmp_path: Path) -> None:
    path, clock = tmp_path / "state.db", SetClock()
    await receive_acknowledgement(path, clock)

    assert await is_lost_after_a_restart(path, SetClock(wall=NOON - timedelta(hours=1)))


async def test_without_any_contact_workloads_with_stop_after_do_not_run(tmp_path: Path) -> None:
    assert await is_lost_after_a_restart(tmp_path / "state.db", SetClock())


async def test_without_stop_after_the_contact_time_is_not_written(tmp_path: Path) -> None:
    async with a_state(tmp_path / "state.db") as journal:
        contact = SchedulerContact(journal, SetClock(), wake=lambda _name: None)
        await contact.acknowledged(sent=1000.0, sent_at=NOON)

        assert journal.contact_at is None


async def test_a_workload_with_expired_stop_after_is_woken_until_it_has_stopped(
    tmp_path: Path,
) -> None:
    woken = asyncio.Event()
    async with a_state(tmp_path / "state.db") as journal:
        await journal.commit(JournalChange(entry=ENTRY))
        contact = SchedulerContact(journal, SetClock(), wake=lambda _name: woken.set())
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            looking = group.create_task(contact.run())
            await woken.wait()
            looking.cancel()


async def test_an_order_with_stop_after_waits_for_the_first_response_of_a_scheduler(
    tmp_path: Path,
) -> None:
    async with a_state(tmp_path / "state.db") as journal, asyncio.TaskGroup() as group:
        contact = SchedulerContact(journal, SetClock(), wake=lambda _name: None)
        waiting = group.create_task(contact.is_established_for(ORDER))
        await asyncio.sleep(0)
        assert not waiting.done()
        await contact.acknowledged(sent=1000.0, sent_at=NOON)

        assert await waiting


async def test_contact_is_unbroken_without_a_long_gap(tmp_path: Path) -> None:
    clock = SetClock()
    async with a_state(tmp_path / "state.db") as journal:
        contact = SchedulerContact(journal, clock, wake=lambda _name: None)
        assert contact.unbroken_for() == timedelta()
        for _ in range(10):
            await contact.acknowledged(sent=clock.monotonic(), sent_at=clock.now())
            clock.advance(30)
        assert contact.unbroken_for() == timedelta(seconds=300)

        clock.advance(60)
        assert contact.unbroken_for() == timedelta()
        await contact.acknowledged(sent=clock.monotonic(), sent_at=clock.now())
        clock.advance(5)
        assert contact.unbroken_for() == timedelta(seconds=5)


async def test_the_time_without_a_leader_is_unknown_until_the_first_contact(
    tmp_path: Path,
) -> None:
    clock = SetClock()
    async with a_state(tmp_path / "state.db") as journal:
        contact = SchedulerContact(journal, clock, wake=lambda _name: None)
        before = contact.silent_for()
        await contact.acknowledged(sent=clock.monotonic(), sent_at=clock.now())
        clock.advance(7)

        assert before is None
        assert contact.silent_for() == timedelta(seconds=7)


WITH_DATA = replace(
    ORDER,
    stop_after_seconds=0,
    spec=ContainerSpec("db", volumes=(VolumeMount("/srv/db", "/data"),)),
)
WITHOUT_DATA = replace(WITH_DATA, spec=ContainerSpec("web"))


async def test_workloads_with_data_stop_while_another_host_is_this_node(
    tmp_path: Path,
) -> None:
    async with a_state(tmp_path / "state.db") as journal:
        contact = SchedulerContact(journal, SetClock(), wake=lambda _name: None)
        assert not contact.must_stop(WITH_DATA)

        contact.set_superseded(True)
        assert contact.must_stop(WITH_DATA)
        assert not contact.must_stop(WITHOUT_DATA)

        contact.set_superseded(False)
        assert not contact.must_stop(WITH_DATA)
