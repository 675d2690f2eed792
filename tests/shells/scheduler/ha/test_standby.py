"""Several schedulers on one store: one leads, the others follow, forward and take over."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.model.cluster import ClusterMarker, Leader
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc
from persys.wire.metadata_keys import DATA_AGE_MS, FORWARDED, MODE, ROLE
from persys.wire.stored import records
from shells.scheduler.api.test_images import PART, ImageAgent, Sender
from shells.scheduler.api.test_logs_exec import ENDLESS, LogsAgent, exec_inputs
from shells.scheduler.harness import eventually
from shells.scheduler.replicas import (
    LEASE,
    Replicas,
    mode_of,
    some_replicas,
    until_leading,
    until_listed,
    until_mode,
    until_standby,
)
from shells.scheduler.third_party_agent import a_node


@pytest.fixture
async def replicas() -> AsyncIterator[Replicas]:
    async with some_replicas() as created:
        yield created


async def test_a_standby_serves_reads_with_their_age(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    await leader.apply("web")
    await until_listed(standby, "web")
    _, beside = await mode_of(standby)
    assert beside[ROLE] == "standby"
    assert int(beside[DATA_AGE_MS]) < 5000
    assert ROLE not in (await mode_of(leader))[1]


async def test_a_standby_forwards_changes_to_the_leader(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()

    response = await standby.apply("web")

    assert response.success
    assert await leader.names() == ["web"]
    assert await standby.names() == ["web"]


async def test_a_node_may_register_through_a_standby(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    async with a_node("n1", standby.stub, cpu=4000, memory=8192, types=("container",)) as node:
        await node.join()
        await leader.apply("web")
        await leader.until("web", "Running")


async def test_logs_and_exec_work_through_a_standby(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    async with a_node("n1", leader.stub) as node:
        await node.agent.stop()
        node.agent = logs_agent = LogsAgent()
        await logs_agent.start()
        await node.join()
        for name in ("web", ENDLESS):
            await leader.apply(name)
            await leader.until(name, "Running")

        logs = standby.stub.StreamLogs(pb.LogsRequest(workload_id="web"), timeout=10)
        outputs = [one async for one in standby.stub.Exec(exec_inputs(b"a", b"b"), timeout=10)]
        endless = standby.stub.StreamLogs(pb.LogsRequest(workload_id=ENDLESS))
        await endless.read()
        logs_agent.left.clear()
        endless.cancel()
        async with asyncio.timeout(10):
            await logs_agent.left.wait()

        assert len([chunk async for chunk in logs]) == 2
        assert b"".join(one.stdout for one in outputs) == b"AB"
        assert outputs[-1].exit.code == 3


async def test_an_image_upload_and_its_refusal_work_through_a_standby(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    async with a_node("n1", leader.stub, cpu=4000, memory=8192, types=("vm",)) as node:
        await node.agent.stop()
        node.agent = store = ImageAgent()
        await store.start()
        await node.join()

        ends = await Sender(standby, 30).ends()
        store.refuses_after = store.parts_taken + 2
        refused = await Sender(standby, 300, name="other").ends()

        assert ends["n1"].done
        assert store.images == {"debian": 30 * PART}
        assert "no room for it" in refused["n1"].problem


async def test_a_standby_leads_at_once_when_the_leader_stops(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    await leader.apply("before")

    await replicas.stop(0)
    response = await standby.apply("after")

    assert response.success
    assert await standby.names() == ["after", "before"]


async def test_a_leader_that_was_cut_off_loses_leadership_and_writes_nothing(
    replicas: Replicas,
) -> None:
    old, new = await replicas.add(), await replicas.add()
    await old.apply("before")

    replicas.stores[0].down = True
    await until_leading(new)
    assert (await new.apply("meanwhile")).success
    replicas.stores[0].down = False
    await until_standby(old)
    assert (await old.apply("afterwards")).success
    assert await new.names() == ["afterwards", "before", "meanwhile"]


async def test_a_former_leader_keeps_following_when_its_watch_breaks(replicas: Replicas) -> None:
    old, new = await replicas.add(), await replicas.add()
    replicas.stores[0].down = True
    await until_leading(new)
    replicas.stores[0].down = False
    await until_standby(old)

    replicas.stores[0].is_behind = True
    await new.apply("one")
    await new.apply("two")

    await until_listed(old, "one", "two")
    assert not replicas.stores[0].is_behind


async def test_a_request_to_a_former_leader_is_unavailable_and_not_refused(
    replicas: Replicas,
) -> None:
    old, new = await replicas.add(), await replicas.add()
    await old.apply("before")
    # Longer than its lease, which it cannot renew.
    replicas.stores[0].commit_seconds = 1.5 * LEASE.total_seconds()
    replicas.stores[0].down_for_leases = True

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await old.apply("late")

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    await until_leading(new)
    await until_standby(old)
    assert await new.names() == ["before"]


async def test_a_call_waits_for_the_next_leader(replicas: Replicas) -> None:
    gone = Unit(puts={keys.LEADER: records.encode(Leader("gone", "127.0.0.1:1"))})
    marker = Unit(puts={keys.CLUSTER: records.encode(ClusterMarker("u", SystemClock().now()))})
    await replicas.store.commit([gone, marker])
    standby = await replicas.add()

    task = asyncio.get_running_loop().create_task(standby.apply("web"))
    await asyncio.wait([task], timeout=0.5)
    assert not task.done()
    await replicas.store.commit([Unit(deletes=[keys.LEADER])])

    assert (await task).success


async def test_a_watch_continues_without_a_gap_under_the_next_leader(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    await leader.apply("one")
    seen: list[int] = []

    async def watch() -> None:
        request = pb.WatchEventsRequest(after_sequence=0)
        async for event in standby.stub.WatchEvents(request):
            seen.append(event.sequence)

    watching = asyncio.get_running_loop().create_task(watch())
    await replicas.stop(0)
    await standby.apply("two")
    listed = await standby.stub.ListEvents(pb.ListEventsRequest(), timeout=5)

    async def all_seen() -> bool:
        return seen == [event.sequence for event in listed.events]

    await eventually(all_seen, lambda: f"{seen} to be {len(listed.events)} events")
    watching.cancel()
    with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
        await watching


async def test_a_standby_reports_the_leader_and_its_endpoint(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()

    async def knows_leader() -> bool:
        return bool((await mode_of(standby))[0].leader)

    await eventually(knows_leader, lambda: "the standby to know the leader")
    view, _ = await mode_of(standby)
    own, _ = await mode_of(leader)
    assert (view.role, own.role) == ("standby", "leader")
    assert (view.leader, view.leader_endpoint) == (own.leader, own.leader_endpoint)
    assert view.cluster_uid == own.cluster_uid
    health = await replicas.health(1)
    assert (health["role"], health["leader"]) == ("standby", own.leader)
    assert health["leaderEndpoint"] == replicas.endpoints[0]
    assert health["dataAgeMs"] < 5000


async def test_only_the_leader_counts_itself_as_leading(replicas: Replicas) -> None:
    await replicas.add()
    await replicas.add()

    leading = [await replicas.metric(number, "persys_scheduler_leading") for number in (0, 1)]

    assert leading == [1, 0]


async def test_a_standby_without_its_store_is_degraded_until_it_is_back(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    await leader.apply("web")
    await until_listed(standby, "web")

    replicas.stores[1].down = True
    await until_mode(standby, "degraded")
    _, beside = await mode_of(standby)
    assert (beside[MODE], beside[ROLE]) == ("degraded", "standby")
    assert await standby.names() == ["web"]
    assert (await standby.apply("meanwhile")).success  # the leader has its store
    replicas.stores[1].down = False

    await until_listed(standby, "meanwhile", "web")
    assert (await mode_of(standby))[0].mode == "normal"


async def test_a_standby_whose_revision_was_compacted_reads_everything_again(
    replicas: Replicas,
) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    await leader.apply("one")
    await until_listed(standby, "one")

    replicas.stores[1].is_behind = True
    await leader.apply("two")
    await leader.apply("three")

    await until_listed(standby, "one", "two", "three")
    assert not replicas.stores[1].is_behind


async def test_a_standby_whose_watch_is_stuck_finds_the_next_leader(replicas: Replicas) -> None:
    controls = [await replicas.add() for _ in range(3)]
    for control in controls:
        await control.names()
    replicas.stores[2].watch_tells.clear()

    await replicas.stop(0)
    await until_leading(controls[1])

    async def is_taken() -> bool:
        try:
            return (await controls[2].apply("web")).success
        except grpc.aio.AioRpcError:
            return False

    await eventually(is_taken, lambda: "the standby to pass on to the next leader", within=5)
    replicas.stores[2].watch_tells.set()
    await until_listed(controls[2], "web")


async def test_trailing_metadata_of_the_leader_is_returned(replicas: Replicas) -> None:
    leader, standby = await replicas.add(), await replicas.add()
    replicas.stores[0].down = True
    assert not (await leader.apply("refused")).success

    call = standby.stub.ApplyWorkload(pb.ApplyWorkloadRequest(workload_id="web"), timeout=5)

    assert not (await call).success
    assert dict(await call.trailing_metadata() or ())[MODE] == "degraded"


class RecordingLeader(control_pb2_grpc.AgentControlServicer):
    """A leader that only records its calls."""

    def __init__(self) -> None:
        self.beside: dict[str, str] = {}
        self.remaining: float | None = None

    async def RetryWorkload(  # noqa: N802
        self,
        request: pb.RetryWorkloadRequest,
        context: "grpc.aio.ServicerContext[object, object]",
    ) -> pb.RetryWorkloadResponse:
        self.beside = {key: str(value) for key, value in context.invocation_metadata() or ()}
        self.remaining = context.time_remaining()
        return pb.RetryWorkloadResponse(accepted=True)


async def test_a_forwarded_call_keeps_its_deadline_and_its_trace(replicas: Replicas) -> None:
    leader = RecordingLeader()
    server = grpc.aio.server()
    control_pb2_grpc.add_AgentControlServicer_to_server(leader, server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    marker = ClusterMarker("another", SystemClock().now())
    held = {keys.LEADER: Leader("elsewhere", endpoint), keys.CLUSTER: marker}
    await replicas.store.commit(
        [Unit(puts={key: records.encode(one) for key, one in held.items()})]
    )
    standby = await replicas.add()

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    response = await standby.stub.RetryWorkload(
        pb.RetryWorkloadRequest(workload_id="web"), timeout=3, metadata=(("traceparent", trace),)
    )

    assert response.accepted
    assert leader.beside["traceparent"] == trace
    assert FORWARDED in leader.beside
    await server.stop(None)
    assert leader.remaining is not None
    assert 0 < leader.remaining < 4


async def test_an_agents_stream_through_a_standby_ends_when_the_leader_changes(
    replicas: Replicas,
) -> None:
    await replicas.add()
    await replicas.add()
    third = await replicas.add()
    call = third.stub.ControlStream()
    await call.write(pb.ControlMessage(register=a_registration("n1")))
    assert (await call.read()).registered.accepted

    await replicas.stop(0)

    async with asyncio.timeout(5):
        await call.code()


def a_registration(node_id: str) -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=node_id,
        grpc_endpoint="127.0.0.1:1",
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=4000,
            memory_total_mb=8192,
            supported_workload_types=["container"],
        ),
    )


async def test_schedulers_with_records_create_no_new_cluster_on_a_wiped_store(
    replicas: Replicas,
) -> None:
    controls = [await replicas.add() for _ in range(3)]
    await controls[0].apply("web")
    for control in controls:
        await until_listed(control, "web")
    uid = (await mode_of(controls[0]))[0].cluster_uid

    await replicas.stores[0].wipe()

    for control in controls:
        await until_mode(control, "recovery")
        assert await control.names() == ["web"]
    new_replica = await replicas.add()
    await until_standby(new_replica)  # the leader holds its key in the empty store
    assert await replicas.store.get(keys.CLUSTER) is None

    async with a_node("n1", new_replica.stub) as node:
        await node.register()
        response = await new_replica.stub.RebuildFromAgents(
            pb.RebuildFromAgentsRequest(), timeout=10
        )
        assert response.accepted, response.reason
    for control in (*controls, new_replica):
        await until_mode(control, "normal")
        await until_listed(control, "web")
        assert (await mode_of(control))[0].cluster_uid == uid


async def test_a_standby_with_records_leads_the_recovery_when_leader_and_store_are_lost(
    replicas: Replicas,
) -> None:
    controls = [await replicas.add() for _ in range(3)]
    await controls[0].apply("web")
    for control in controls:
        await until_listed(control, "web")

    for store in replicas.stores:
        store.down = True
    for control in controls:
        await until_mode(control, "degraded")
    await replicas.stop(0)
    await replicas.stores[0].wipe()
    for store in replicas.stores:
        store.down = False

    async def has_one_leader() -> bool:
        roles = [(await mode_of(control))[0].role for control in controls[1:]]
        return sorted(roles) == ["leader", "standby"]

    await eventually(has_one_leader, lambda: "one of the others to lead")
    for control in controls[1:]:
        await until_mode(control, "recovery")
        assert await control.names() == ["web"]
    assert await replicas.store.get(keys.CLUSTER) is None
