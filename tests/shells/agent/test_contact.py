"""The silence of the scheduler, counted through restarts and through clocks that were set."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import a_supervisor
from persys.agent.contact import Contact
from persys.agent.journal import Entry, Standing
from persys.agent.journal_changes import Change
from persys.agent.metrics import Metrics
from persys.agent.state import State
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.observation import Actual
from persys.model.order import Order
from persys.model.spec import ContainerSpec, VolumeMount, WorkloadType
from persys.model.workload import Desired

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
ENTRY = Entry(ORDER, 1, ActionId("a1"), NOON, NOON, Standing(Actual.RUNNING, NOON))


class SetClock:
    """Both times of the machine, as the test sets them."""

    def __init__(self, *, seconds: float = 1000.0, wall: datetime = NOON) -> None:
        self.seconds = seconds
        self.wall = wall

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def let_pass(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)


@asynccontextmanager
async def a_state(path: Path) -> AsyncIterator[State]:
    state = State(path, cluster_id="c", node_id=NodeId("n1"))
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(state.run(a_supervisor(), Metrics(dict).journal_written))
        yield state
        writing.cancel()
    state.close()


async def heard(path: Path, clock: SetClock) -> None:
    """An agent hears from the scheduler, and ends."""
    async with a_state(path) as state:
        await state.commit(Change(entry=ENTRY))
        contact = Contact(state, clock, wake=lambda _name: None)
        await contact.heard(sent=clock.monotonic(), sent_at=clock.now())
        assert not contact.is_lost_for(ORDER)


async def is_lost_after_a_restart(path: Path, clock: SetClock) -> bool:
    async with a_state(path) as state:
        return Contact(state, clock, wake=lambda _name: None).is_lost_for(ORDER)


async def test_silence_counts_from_the_sending_of_what_was_acknowledged(tmp_path: Path) -> None:
    clock = SetClock()
    async with a_state(tmp_path / "state.db") as state:
        contact = Contact(state, clock, wake=lambda _name: None)
        sent = clock.monotonic()
        clock.let_pass(5)
        await contact.heard(sent=sent, sent_at=NOON)
        clock.let_pass(54)
        assert not contact.is_lost_for(ORDER)
        clock.let_pass(1)
        assert contact.is_lost_for(ORDER)


@pytest.mark.parametrize(("down_seconds", "lost"), [(50, False), (60, True)])
async def test_an_agent_that_starts_again_goes_on_counting(
    tmp_path: Path, down_seconds: int, lost: bool
) -> None:
    path, clock = tmp_path / "state.db", SetClock()
    await heard(path, clock)
    rebooted = SetClock(seconds=3.0, wall=clock.wall + timedelta(seconds=down_seconds))

    assert await is_lost_after_a_restart(path, rebooted) is lost


async def test_a_clock_that_was_set_back_counts_as_too_long(tmp_path: Path) -> None:
    path, clock = tmp_path / "state.db", SetClock()
    await heard(path, clock)

    assert await is_lost_after_a_restart(path, SetClock(wall=NOON - timedelta(hours=1)))


async def test_an_agent_that_never_heard_from_a_scheduler_runs_no_such_work(tmp_path: Path) -> None:
    assert await is_lost_after_a_restart(tmp_path / "state.db", SetClock())


async def test_without_such_work_nothing_is_written(tmp_path: Path) -> None:
    async with a_state(tmp_path / "state.db") as state:
        contact = Contact(state, SetClock(), wake=lambda _name: None)
        await contact.heard(sent=1000.0, sent_at=NOON)

        assert state.heard_at is None


async def test_what_allows_no_more_silence_is_woken_until_it_says_that_it_stopped(
    tmp_path: Path,
) -> None:
    woken = asyncio.Event()
    async with a_state(tmp_path / "state.db") as state:
        await state.commit(Change(entry=ENTRY))
        contact = Contact(state, SetClock(), wake=lambda _name: woken.set())
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            looking = group.create_task(contact.run())
            await woken.wait()
            looking.cancel()


async def test_such_an_order_waits_for_the_first_answer_of_a_scheduler(tmp_path: Path) -> None:
    async with a_state(tmp_path / "state.db") as state, asyncio.TaskGroup() as group:
        contact = Contact(state, SetClock(), wake=lambda _name: None)
        waiting = group.create_task(contact.is_made_for(ORDER))
        await asyncio.sleep(0)
        assert not waiting.done()
        await contact.heard(sent=1000.0, sent_at=NOON)

        assert await waiting


async def test_contact_is_unbroken_as_long_as_no_silence_was_long(tmp_path: Path) -> None:
    clock = SetClock()
    async with a_state(tmp_path / "state.db") as state:
        contact = Contact(state, clock, wake=lambda _name: None)
        assert contact.unbroken_for() == timedelta()
        for _ in range(10):
            await contact.heard(sent=clock.monotonic(), sent_at=clock.now())
            clock.let_pass(30)
        assert contact.unbroken_for() == timedelta(seconds=300)

        clock.let_pass(60)
        assert contact.unbroken_for() == timedelta()
        await contact.heard(sent=clock.monotonic(), sent_at=clock.now())
        clock.let_pass(5)
        assert contact.unbroken_for() == timedelta(seconds=5)


WITH_DATA = replace(
    ORDER,
    stop_after_seconds=0,
    spec=ContainerSpec("db", volumes=(VolumeMount("/srv/db", "/data"),)),
)
WITHOUT_DATA = replace(WITH_DATA, spec=ContainerSpec("web"))


async def test_what_has_data_must_not_run_while_another_machine_is_this_node(
    tmp_path: Path,
) -> None:
    async with a_state(tmp_path / "state.db") as state:
        contact = Contact(state, SetClock(), wake=lambda _name: None)
        assert not contact.is_lost_for(WITH_DATA)

        contact.supersede(True)
        assert contact.is_lost_for(WITH_DATA)
        assert not contact.is_lost_for(WITHOUT_DATA)

        contact.supersede(False)
        assert not contact.is_lost_for(WITH_DATA)
