"""Several schedulers on one store: one leads, the others follow, pass on and take over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.scheduler.plane import Plane
from persys.store.memory import MemoryStore
from persys.wire.beside import DATA_AGE_MS, ROLE
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Control, brisk, eventually
from shells.scheduler.peer import a_node
from shells.scheduler.stores import TroubledStore
from shells.scheduler.test_access import ENDLESS, Talker, spoken

LEASE = timedelta(seconds=1)


class Seats:
    """Schedulers on one store, each with a connection of its own that can be cut."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._store = MemoryStore(SystemClock().monotonic)
        self._stack = stack
        self.running: list[asyncio.Task[None]] = []
        self.stores: list[TroubledStore] = []
        self.controls: list[Control] = []
        self._stops: list[asyncio.Event] = []

    async def add(self) -> Control:
        """One more scheduler, serving."""
        store = TroubledStore(self._store)
        settings = brisk(leader_lease=LEASE)
        stop = asyncio.Event()
        plane = Plane(settings, store, SystemClock(), shared=True)
        self.running.append(asyncio.get_running_loop().create_task(plane.run(stop)))
        self.stores.append(store)
        self._stops.append(stop)
        control = Control(settings.grpc_port)
        self.controls.append(control)
        await control.summary()
        return control

    async def stop(self, number: int) -> None:
        self._stops[number].set()
        await self.running[number]

    async def close(self) -> None:
        for stop in self._stops:
            stop.set()
        for control in self.controls:
            await control.channel.close()
        await asyncio.gather(*self.running)


@pytest.fixture
async def seats() -> AsyncIterator[Seats]:
    async with AsyncExitStack() as stack:
        made = Seats(stack)
        yield made
        await made.close()


async def mode_of(control: Control) -> tuple[pb.ModeView, dict[str, str]]:
    call = control.stub.GetMode(pb.GetModeRequest(), timeout=5)
    view = await call
    beside = await call.trailing_metadata()
    return view, {key: str(value) for key, value in beside or ()}


async def test_a_standby_answers_reads_and_says_how_old_they_are(seats: Seats) -> None:
    leader, standby = await seats.add(), await seats.add()
    await leader.apply("web")

    async def followed() -> bool:
        return await standby.names() == ["web"]

    await eventually(followed, lambda: "the standby to follow")
    _, beside = await mode_of(standby)
    assert beside[ROLE] == "standby"
    assert int(beside[DATA_AGE_MS]) < 5000
    assert ROLE not in (await mode_of(leader))[1]


async def test_what_a_standby_is_asked_to_change_the_leader_changes(seats: Seats) -> None:
    leader, standby = await seats.add(), await seats.add()

    answer = await standby.apply("web")

    assert answer.success
    assert await leader.names() == ["web"]


async def test_a_node_may_join_through_a_standby(seats: Seats) -> None:
    leader, standby = await seats.add(), await seats.add()
    async with a_node("n1", standby.stub, cpu=4000, memory=8192, types=("container",)) as node:
        await node.join()
        await leader.apply("web")
        await leader.until("web", "Running")


async def test_logs_and_exec_go_through_a_standby_both_ways(seats: Seats) -> None:
    leader, standby = await seats.add(), await seats.add()
    async with a_node("n1", leader.stub) as node:
        await node.agent.stop()
        node.agent = talker = Talker()
        await talker.start()
        await node.join()
        for name in ("web", ENDLESS):
            await leader.apply(name)
            await leader.until(name, "Running")

        logs = standby.stub.StreamLogs(pb.LogsRequest(workload_id="web"), timeout=10)
        outputs = [one async for one in standby.stub.Exec(spoken(b"a", b"b"), timeout=10)]
        endless = standby.stub.StreamLogs(pb.LogsRequest(workload_id=ENDLESS))
        await endless.read()
        talker.left.clear()
        endless.cancel()
        async with asyncio.timeout(10):
            await talker.left.wait()

        assert len([chunk async for chunk in logs]) == 2
        assert b"".join(one.stdout for one in outputs) == b"AB"
        assert outputs[-1].exit.code == 3


async def test_the_next_one_leads_at_once_when_the_leader_stops(seats: Seats) -> None:
    leader, standby = await seats.add(), await seats.add()
    await leader.apply("before")

    await seats.stop(0)
    answer = await standby.apply("after")

    assert answer.success
    assert await standby.names() == ["after", "before"]


async def test_a_leader_that_was_cut_off_leads_no_more_and_writes_nothing(seats: Seats) -> None:
    old, new = await seats.add(), await seats.add()
    await old.apply("before")

    seats.stores[0].down = True

    async def leads() -> bool:
        return ROLE not in (await mode_of(new))[1]

    await eventually(leads, lambda: "the standby to lead")
    assert (await new.apply("meanwhile")).success
    seats.stores[0].down = False

    async def stands_by() -> bool:
        return (await mode_of(old))[1].get(ROLE) == "standby"

    await eventually(stands_by, lambda: "the old leader to stand by")
    assert (await old.apply("afterwards")).success
    assert await new.names() == ["afterwards", "before", "meanwhile"]


async def test_events_go_on_without_a_gap_under_the_next_leader(seats: Seats) -> None:
    leader, standby = await seats.add(), await seats.add()
    await leader.apply("one")
    seen: list[int] = []

    async def watch() -> None:
        request = pb.WatchEventsRequest(after_sequence=0)
        async for event in standby.stub.WatchEvents(request):
            seen.append(event.sequence)

    watching = asyncio.get_running_loop().create_task(watch())
    await seats.stop(0)
    await standby.apply("two")
    listed = await standby.stub.ListEvents(pb.ListEventsRequest(), timeout=5)

    async def all_seen() -> bool:
        return seen == [event.sequence for event in listed.events]

    await eventually(all_seen, lambda: f"{seen} to be {len(listed.events)} events")
    watching.cancel()
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await watching
