"""The ways to end recovery mode: what is restored, what is not, and that nothing is started twice."""

from collections.abc import AsyncIterator

import grpc
import pytest

from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import snapshot
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.recovery.test_mode import mode, our_node, running, until_mode
from shells.scheduler.third_party_agent import Copy


async def save(cluster: Cluster) -> list[bytes]:
    stream = cluster.control.stub.SaveSnapshot(pb.SaveSnapshotRequest(), timeout=30)
    return [chunk.data async for chunk in stream]


async def restore(cluster: Cluster, chunks: list[bytes]) -> pb.RecoveryAnswer:
    async def messages() -> AsyncIterator[pb.SnapshotChunk]:
        for chunk in chunks:
            yield pb.SnapshotChunk(data=chunk)

    response: pb.RecoveryAnswer = await cluster.control.stub.RestoreSnapshot(messages(), timeout=30)
    return response


async def rebuild(cluster: Cluster) -> pb.RecoveryAnswer:
    response: pb.RecoveryAnswer = await cluster.control.stub.RebuildFromAgents(
        pb.RebuildFromAgentsRequest(), timeout=30
    )
    return response


async def lose_the_store(cluster: Cluster, *, and_memory: bool) -> None:
    if and_memory:
        await cluster.stop()
        await cluster.store.wipe()
        await cluster.start()
    else:
        await cluster.store.wipe()
        await cluster.control.apply("noticed")
    await until_mode(cluster.control, "recovery")


@pytest.mark.parametrize("and_memory", [False, True])
async def test_a_rebuild_restores_everything_and_restarts_nothing(
    cluster: Cluster, and_memory: bool
) -> None:
    node = await our_node(cluster)
    await running(cluster, "web", "mail")
    await cluster.control.want("mail", "Stopped")
    await cluster.control.until("mail", "Stopped")
    before = {name: (await cluster.control.workload(name)).epoch for name in ("web", "mail")}
    uid, starts = node.cluster_uid, list(node.agent.starts)
    await lose_the_store(cluster, and_memory=and_memory)

    preview = await cluster.control.stub.RebuildFromAgents(
        pb.RebuildFromAgentsRequest(dry_run=True), timeout=30
    )
    assert (preview.accepted, preview.workloads) == (True, 2)
    assert (await mode(cluster.control)).mode == "recovery"
    described = sorted(one.workload_id for one in preview.recovered)
    assert described == (["mail", "web"] if and_memory else [])

    response = await rebuild(cluster)

    assert response.accepted, response.reason
    assert (response.nodes, response.workloads, list(response.left_out)) == (1, 2, [])
    request = pb.ListEventsRequest(kinds=["ClusterRebuilt"])
    assert len((await cluster.control.stub.ListEvents(request, timeout=10)).events) == 1
    web = await cluster.control.until("web", "Running")
    mail = await cluster.control.until("mail", "Stopped")
    assert min(web.epoch, mail.epoch) > max(before.values())
    assert web.spec.container.image == "nginx"
    assert node.agent.starts == starts
    assert node.agent.deletes == []
    view = await mode(cluster.control)
    assert (view.mode, view.cluster_uid) == ("normal", uid)
    await running(cluster, "late")


async def test_a_rebuild_survives_a_restart(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    await lose_the_store(cluster, and_memory=True)
    await rebuild(cluster)
    await cluster.control.until("web", "Running")
    starts = list(node.agent.starts)
    await cluster.stop()
    await cluster.start()

    assert (await mode(cluster.control)).mode == "normal"
    await cluster.control.until("web", "Running")
    assert node.agent.starts == starts


async def test_a_rebuild_lists_workloads_of_agents_without_intents(cluster: Cluster) -> None:
    await our_node(cluster, "n1")
    await running(cluster, "web")
    field = await cluster.prepare("n2")
    field.agent.copies["strange"] = Copy(
        agent_pb2.WorkloadStatus(id="strange", actual_state=agent_pb2.ACTUAL_STATE_RUNNING)
    )
    await lose_the_store(cluster, and_memory=True)
    assert not (await field.register()).accepted

    response = await rebuild(cluster)

    assert (response.nodes, response.workloads) == (2, 1)
    assert list(response.left_out) == [
        "strange on n2: its agent has no stored intent; it stays as an orphan"
    ]
    assert await cluster.control.names() == ["web"]
    assert field.agent.running() == {"strange"}
    assert field.agent.deletes == []


async def test_a_rebuild_without_any_node_is_refused(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    await node.stop_heartbeats()
    await cluster.stop()
    await cluster.store.store.commit(
        [Unit(deletes=[record.key]) for record in (await cluster.store.read("/nodes/")).records]
    )
    await cluster.store.store.commit([Unit(deletes=[keys.CLUSTER])])
    await cluster.start()

    response = await rebuild(cluster)

    assert not response.accepted
    assert "no node is known yet" in response.reason


async def test_accepting_the_empty_store_deletes_nothing_on_the_nodes(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    await lose_the_store(cluster, and_memory=True)

    response = await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=10)

    assert response.accepted, response.reason

    async def joined() -> bool:
        return (await cluster.control.summary()).ready_nodes == 1

    await eventually(joined, lambda: "the node to join, which is no reason for recovery any more")
    assert (await mode(cluster.control)).mode == "normal"
    assert await cluster.control.names() == []
    await running(cluster, "new")
    assert node.agent.running() == {"web", "new"}
    assert node.agent.deletes == []


async def test_a_snapshot_is_one_file_of_all_records(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")

    contents = snapshot.read(await save(cluster))

    assert contents.header.cluster_uid == (await mode(cluster.control)).cluster_uid
    assert contents.header.source == "store"
    assert contents.header.revision > 0
    assert contents.header.counts["workloads"] == contents.header.counts["nodes"] == 1
    stored = {key for key, _ in contents.records}
    assert keys.LEADER not in stored
    assert not any(keys.is_node_lease(key) for key in stored)


async def test_a_snapshot_can_be_saved_while_the_store_is_unavailable(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    await lose_the_store(cluster, and_memory=False)

    contents = snapshot.read(await save(cluster))

    assert contents.header.source == "memory"
    assert contents.header.counts["workloads"] == 1
    assert contents.header.counts["assignments"] == 1


@pytest.mark.parametrize("and_memory", [False, True])
async def test_a_restore_restores_everything_and_restarts_nothing(
    cluster: Cluster, and_memory: bool
) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    saved = await save(cluster)
    await running(cluster, "late")  # only its node has it
    starts = list(node.agent.starts)
    await lose_the_store(cluster, and_memory=and_memory)

    response = await restore(cluster, saved)

    assert response.accepted, response.reason
    assert (response.nodes, response.workloads) == (1, 2)
    await cluster.control.until("web", "Running")
    await cluster.control.until("late", "Running")
    assert node.agent.starts == starts
    listed = await cluster.control.stub.ListEvents(pb.ListEventsRequest(), timeout=10)
    assert "WorkloadRunning" in {event.kind for event in listed.events}


async def test_a_restore_follows_a_workload_that_has_moved_since(cluster: Cluster) -> None:
    first = await our_node(cluster, "n1")
    await running(cluster, "web")
    saved = await save(cluster)
    second = await our_node(cluster, "n2")
    await cluster.control.stub.DrainNode(pb.DrainNodeRequest(node_id="n1"), timeout=10)

    async def moved() -> bool:
        view = await cluster.control.workload("web")
        return view.assigned_node_id == "n2" and view.status == "Running"

    await eventually(moved, lambda: "web to move")

    async def left() -> bool:
        return not first.agent.running()

    await eventually(left, lambda: "the old copy to be gone")
    epoch = (await cluster.control.workload("web")).epoch
    starts = list(second.agent.starts)
    await lose_the_store(cluster, and_memory=False)

    assert (await restore(cluster, saved)).accepted

    view = await cluster.control.until("web", "Running")
    assert view.assigned_node_id == "n2"
    assert view.epoch > epoch
    assert second.agent.starts == starts
    assert first.agent.running() == set()


async def test_a_restore_into_a_running_cluster_is_refused_with_the_next_step(
    cluster: Cluster,
) -> None:
    await cluster.join()
    await running(cluster, "web")

    response = await restore(cluster, await save(cluster))

    assert not response.accepted
    assert "delete them first" in response.reason
    assert (await mode(cluster.control)).mode == "normal"


async def test_a_restore_into_an_empty_cluster_is_accepted(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    saved = await save(cluster)
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")

    response = await restore(cluster, saved)

    assert response.accepted, response.reason
    await cluster.control.until("web", "Running")
    assert node.agent.running() == {"web"}


async def test_a_damaged_file_changes_nothing(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    saved = b"".join(await save(cluster))
    await lose_the_store(cluster, and_memory=False)

    with pytest.raises(grpc.aio.AioRpcError, match="is truncated"):
        await restore(cluster, [saved[:-20]])

    assert (await mode(cluster.control)).mode == "recovery"


async def test_a_restore_writes_nothing_once_another_scheduler_leads(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    saved = await save(cluster)
    await lose_the_store(cluster, and_memory=False)
    cluster.store.next_leader = "other"

    with pytest.raises(grpc.aio.AioRpcError, match="/leader is no longer at version"):
        await restore(cluster, saved)

    assert await cluster.ended() is not None
    found = await cluster.store.read("/")
    assert [record.key for record in found.records] == [keys.LEADER]


async def test_an_interrupted_restore_stays_in_recovery_mode(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    saved = await save(cluster)
    await lose_the_store(cluster, and_memory=False)
    assert (await restore(cluster, saved)).accepted
    await cluster.stop()
    # The marker is written last: this is what a crash just before it leaves.
    await cluster.store.store.commit([Unit(deletes=[keys.CLUSTER])])
    await cluster.start()

    assert (await mode(cluster.control)).mode == "recovery"
    assert (await restore(cluster, saved)).accepted
    await cluster.control.until("web", "Running")
