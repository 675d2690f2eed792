"""Events through the API: filters, watches, restarts and troubled stores."""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

if TYPE_CHECKING:
    Stream = grpc.aio.UnaryStreamCall[pb.WatchEventsRequest, pb.EventView]


async def listed(cluster: Cluster, **wanted: object) -> pb.ListEventsResponse:
    request = pb.ListEventsRequest(**wanted)  # type: ignore[arg-type]
    response: pb.ListEventsResponse = await cluster.control.stub.ListEvents(request, timeout=10)
    return response


async def kinds(cluster: Cluster, **wanted: object) -> list[str]:
    return [event.kind for event in (await listed(cluster, **wanted)).events]


def watch(cluster: Cluster, **wanted: object) -> "Stream":
    request = pb.WatchEventsRequest(**wanted)  # type: ignore[arg-type]
    stream: Stream = cluster.control.stub.WatchEvents(request, timeout=60)
    return stream


async def take(stream: "Stream", count: int) -> list[pb.EventView]:
    found: list[pb.EventView] = []
    async with asyncio.timeout(15):
        while len(found) < count:
            event = await stream.read()
            assert isinstance(event, pb.EventView), "the stream has ended"
            found.append(event)
    return found


async def a_running_workload(cluster: Cluster, name: str = "web") -> None:
    await cluster.control.apply(name)
    await cluster.control.until(name, "Running")


async def test_every_step_of_a_lifecycle_is_an_event(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")

    found = await listed(cluster)

    assert [event.kind for event in found.events] == [
        "NodeRegistered",
        "WorkloadCreated",
        "WorkloadPlaced",
        "WorkloadRunning",
        "WorkloadDeleteAsked",
        "WorkloadDeleted",
    ]
    assert [event.sequence for event in found.events] == list(range(1, 7))
    assert (found.first_sequence, found.last_sequence) == (1, 6)
    placed = found.events[2]
    assert (placed.workload_id, placed.node_id, placed.epoch) == ("web", "n1", 1)


async def test_events_are_filtered_by_the_request(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster, "web")
    await a_running_workload(cluster, "db")
    later = Timestamp()
    later.FromDatetime(cluster.clock.now() + timedelta(minutes=1))

    assert await kinds(cluster, workload_id="db") == [
        "WorkloadCreated",
        "WorkloadPlaced",
        "WorkloadRunning",
    ]
    assert await kinds(cluster, node_id="n1", kinds=["workloadrunning"]) == ["WorkloadRunning"] * 2
    assert await kinds(cluster, kinds=["WorkloadCreated", "NodeRegistered"], limit=2) == [
        "WorkloadCreated",
        "WorkloadCreated",
    ]
    assert await kinds(cluster, after_sequence=6) == ["WorkloadRunning"]
    assert await kinds(cluster, since=later) == []


async def test_an_unknown_kind_is_refused_with_the_known_ones(cluster: Cluster) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await listed(cluster, kinds=["WorkloadSang"])

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "WorkloadPlaced" in str(refused.value.details())


async def test_several_watchers_each_get_everything_once(cluster: Cluster) -> None:
    streams = [watch(cluster, after_sequence=0) for _ in range(3)]
    await cluster.join()

    await a_running_workload(cluster)

    for stream in streams:
        assert [event.sequence for event in await take(stream, 4)] == [1, 2, 3, 4]
        stream.cancel()


async def test_a_watch_resumes_after_a_restart_without_gaps_or_repeats(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster, "web")
    stream = watch(cluster, after_sequence=0)
    seen = await take(stream, 4)

    await cluster.stop()
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stream.read()
    await cluster.start()
    await a_running_workload(cluster, "db")

    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    stream = watch(cluster, after_sequence=seen[-1].sequence)
    again = await take(stream, 3)
    stream.cancel()
    assert [event.sequence for event in [*seen, *again]] == list(range(1, 8))
    assert [event.sequence for event in (await listed(cluster)).events] == list(range(1, 8))


@pytest.mark.parametrize("cluster", [{"events_max": 3}], indirect=True)
async def test_a_watch_from_a_trimmed_event_is_out_of_range(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster, "web")
    await a_running_workload(cluster, "db")

    stream = watch(cluster, after_sequence=1)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()

    assert refused.value.code() is grpc.StatusCode.OUT_OF_RANGE
    assert (await listed(cluster)).first_sequence == 5


@pytest.mark.parametrize("cluster", [{"events_max": 3}], indirect=True)
async def test_the_store_keeps_no_more_than_the_log(cluster: Cluster) -> None:
    await cluster.join()
    for name in ("a", "b", "c"):
        await a_running_workload(cluster, name)

    stored = await cluster.store.read("/events/")

    assert len(stored.records) == 3


async def test_event_numbers_continue_after_all_events_expired(cluster: Cluster) -> None:
    await cluster.join()
    await a_running_workload(cluster)
    cluster.clock.ahead = timedelta(days=8)
    await cluster.control.want("web", "Stopped")
    await cluster.control.until("web", "Stopped")
    last = (await listed(cluster)).last_sequence

    await cluster.stop()
    await cluster.start()
    await cluster.control.want("web", "Running")
    await cluster.control.until("web", "Running")

    found = await listed(cluster)
    assert found.first_sequence > 4
    assert found.last_sequence == last + 2


async def test_a_commit_with_a_lost_reply_is_one_event(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("first")  # reserves a block of epochs, in a commit of its own
    stream = watch(cluster, after_sequence=0, kinds=["WorkloadCreated"])

    cluster.store.loses_answers = True
    await cluster.control.apply("web")
    cluster.store.loses_answers = False

    async def is_recorded() -> bool:
        return (await kinds(cluster)).count("WorkloadCreated") == 2

    await eventually(is_recorded, lambda: "the event to be shown")
    await cluster.control.apply("db")
    seen = await take(stream, 3)
    stream.cancel()
    assert [event.workload_id for event in seen] == ["first", "web", "db"]
    numbers = [event.sequence for event in (await listed(cluster)).events]
    assert len(set(numbers)) == len(numbers)


async def test_a_commit_that_failed_does_not_stop_a_watch(cluster: Cluster) -> None:
    await cluster.join()
    stream = watch(cluster, after_sequence=0, workload_id="web")

    cluster.store.down = True
    assert not (await cluster.control.apply("web")).success
    cluster.store.down = False

    async def taken() -> bool:
        return (await cluster.control.apply("web")).success

    await eventually(taken, lambda: "the store to take writes again")
    assert [event.kind for event in await take(stream, 2)] == ["WorkloadCreated", "WorkloadPlaced"]
    stream.cancel()


async def test_a_watcher_that_reads_nothing_does_not_delay_others(cluster: Cluster) -> None:
    await cluster.join()
    deaf = watch(cluster, after_sequence=0)

    for number in range(20):
        await cluster.control.apply(f"w{number}")

    stream = watch(cluster, after_sequence=0, kinds=["WorkloadRunning"])
    assert len(await take(stream, 20)) == 20
    stream.cancel()
    deaf.cancel()


@pytest.mark.parametrize("cluster", [{"events_max": 60}], indirect=True)
async def test_a_node_that_registers_again_and_again_does_not_flush_the_history_of_others(
    cluster: Cluster,
) -> None:
    other = await cluster.join("n2")
    hostile = await cluster.join("n1")
    before = await cluster.control.stub.ListEvents(pb.ListEventsRequest(node_id="n2"), timeout=10)

    for number in range(100):
        hostile.labels = {"number": str(number)}
        assert (await hostile.register()).accepted

    events = await cluster.control.stub.ListEvents(pb.ListEventsRequest(), timeout=10)
    again = [one for one in events.events if one.kind == "NodeRegisteredAgain"]
    kept = [one for one in events.events if one.node_id == "n2"]
    assert len(again) <= 1
    assert len(kept) >= len(before.events) > 0
    assert other.agent.running() == set()
