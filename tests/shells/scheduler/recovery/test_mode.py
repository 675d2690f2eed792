"""The modes of the control plane when its store fails, is lost, or comes back."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from persys.errors import FrozenError
from persys.infra.clock import SystemClock
from persys.model.cluster import ClusterMarker
from persys.scheduler.api.methods import REFUSALS, is_refusal
from persys.store import keys
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, ReadOnly
from persys.wire.stored import records
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node

REFUSE = ReadOnly.REFUSE


async def mode(control: Control) -> pb.ModeView:
    view: pb.ModeView = await control.stub.GetMode(pb.GetModeRequest(), timeout=10)
    return view


async def until_mode(control: Control, wanted: str) -> pb.ModeView:
    async def holds_now() -> bool:
        return (await mode(control)).mode == wanted

    await eventually(holds_now, lambda: f"{wanted} mode")
    return await mode(control)


async def health(cluster: Cluster) -> tuple[int, dict[str, Any]]:
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}/health"
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return response.status, await response.json()


async def our_node(cluster: Cluster, node_id: str = "n1") -> Node:
    node = await cluster.prepare(node_id)
    node.agent.behaviour.is_ours = True
    await node.join()
    return node


async def running(cluster: Cluster, *names: str) -> None:
    for name in names:
        response = await cluster.control.apply(name)
        assert response.success, response.error_message
    for name in names:
        await cluster.control.until(name, "Running")


@pytest.mark.parametrize("name", [row.name for row in METHODS.values() if row.read_only is REFUSE])
def test_every_call_refused_in_read_only_mode_has_a_refusal_response(name: str) -> None:
    assert is_refusal(REFUSALS[name](FrozenError("degraded")))


async def test_a_change_is_refused_with_the_mode_and_the_reason(cluster: Cluster) -> None:
    await cluster.join()
    await running(cluster, "web")
    cluster.store.down = True
    await cluster.control.apply("first")  # this call detects the outage

    for refused in (
        (await cluster.control.apply("web")).error_message,
        (await cluster.control.delete("web")).error_message,
        (await cluster.control.retry("web")).reason,
        (await cluster.control.stub.CordonNode(pb.NodeRequest(node_id="n1"), timeout=10)).reason,
        (await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=10)).reason,
    ):
        assert "degraded mode" in refused
        assert "the disk is full" in refused


async def test_a_reply_from_memory_carries_its_age(cluster: Cluster) -> None:
    await cluster.join()
    await running(cluster, "web")
    request = pb.GetWorkloadRequest(workload_id="web")

    call = cluster.control.stub.GetWorkload(request, timeout=10)
    await call
    assert "persys-mode" not in dict(await call.trailing_metadata())

    cluster.store.down = True
    await cluster.control.apply("other")
    call = cluster.control.stub.GetWorkload(request, timeout=10)
    assert (await call).workload.status == "Running"
    trailing = dict(await call.trailing_metadata())
    assert trailing["persys-mode"] == "degraded"
    assert int(trailing["persys-data-age-ms"]) >= 0


async def test_health_reports_every_mode_with_code_200(cluster: Cluster) -> None:
    await cluster.join()
    code, before = await health(cluster)
    assert (code, before["status"], before["mode"], before["dataAgeMs"]) == (200, "ok", "normal", 0)
    assert before["clusterUid"] == (await mode(cluster.control)).cluster_uid

    cluster.store.down = True
    await cluster.control.apply("web")
    code, degraded = await health(cluster)
    assert (code, degraded["status"], degraded["mode"]) == (200, "degraded", "degraded")
    assert degraded["reason"] == "the disk is full"
    assert degraded["modeChangedAt"] > before["modeChangedAt"]


async def test_the_data_age_counts_from_the_last_reply_of_the_store(
    cluster: Cluster,
) -> None:
    await cluster.join()
    leader_since = cluster.clock.monotonic()
    confirmed = cluster.app.leader_lease

    async def is_confirmed_later() -> bool:
        return confirmed.certain_at > leader_since + 0.5

    await eventually(is_confirmed_later, lambda: "the store to confirm the leader again")
    cluster.store.down = True
    await cluster.control.apply("web")

    _, reported = await health(cluster)

    since_confirmed = (cluster.clock.monotonic() - confirmed.certain_at) * 1000
    assert reported["mode"] == "degraded"
    assert reported["dataAgeMs"] <= since_confirmed + 100


async def test_one_value_too_large_is_refused_alone(cluster: Cluster) -> None:
    await cluster.join()
    spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx"))
    spec.container.env["LARGE"] = "x" * 1_100_000

    applied = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="large", spec=spec))

    assert not applied.success
    assert (await mode(cluster.control)).mode == "normal"
    await running(cluster, "web")


async def test_promise_11_a_store_that_was_wiped_deletes_nothing(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web", "mail")
    uid = (await mode(cluster.control)).cluster_uid

    await cluster.store.wipe()
    refused = await cluster.control.apply("late")

    assert not refused.success
    view = await until_mode(cluster.control, "recovery")
    assert "its records are gone" in view.reason
    assert (view.cluster_uid, view.workloads, view.workloads_on_agents) == (uid, 2, 2)
    assert any("rebuild-from-agents" in step for step in view.next_steps)
    # Long enough for every resync and for heartbeats with full lists.
    await node.stop_heartbeats()
    for _ in range(5):
        assert (await node.heartbeat()).drain_node
    await asyncio.sleep(1)
    assert node.agent.running() == {"web", "mail"}
    assert node.agent.deletes == []
    assert sorted(await cluster.control.names()) == ["mail", "web"]
    assert (await cluster.store.read("/")).records == ()


async def test_a_store_that_comes_back_with_its_data_ends_the_recovery(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    kept = (await cluster.store.read("/")).records
    await cluster.store.wipe()
    await cluster.control.apply("late")
    await until_mode(cluster.control, "recovery")

    await cluster.store.store.commit([Unit(puts={one.key: one.value}) for one in kept])

    await until_mode(cluster.control, "normal")
    await running(cluster, "late")
    assert await cluster.control.names() == ["late", "web"]


async def test_a_store_of_another_cluster_is_recovery(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    other = ClusterMarker("somebody-else", cluster.clock.now())
    await cluster.store.wipe()
    await cluster.store.store.commit([Unit(puts={keys.CLUSTER: records.encode(other)})])
    await cluster.control.apply("late")

    assert "somebody-else" in (await until_mode(cluster.control, "recovery")).reason


async def test_records_without_a_marker_are_recovery_at_the_start(cluster: Cluster) -> None:
    await our_node(cluster)
    await running(cluster, "web")
    await cluster.stop()
    await cluster.store.store.commit([Unit(deletes=[keys.CLUSTER])])
    await cluster.start()

    view = await mode(cluster.control)
    assert view.mode == "recovery"
    assert "damaged" in view.reason
    assert await cluster.control.names() == ["web"]


async def test_restored_data_after_a_restart_ends_recovery_mode(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    kept = (await cluster.store.read("/")).records
    starts = list(node.agent.starts)
    await cluster.stop()
    await cluster.store.wipe()
    await cluster.start()
    await until_mode(cluster.control, "recovery")

    ours = [one for one in kept if one.key != keys.LEADER]
    await cluster.store.store.commit([Unit(puts={one.key: one.value}) for one in ours])

    await until_mode(cluster.control, "normal")
    await cluster.control.until("web", "Running")
    assert node.agent.starts == starts


async def test_an_agent_of_a_lost_cluster_turns_an_empty_store_into_recovery(
    cluster: Cluster,
) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    uid = node.cluster_uid
    await cluster.stop()
    await cluster.store.wipe()
    await cluster.start()

    view = await until_mode(cluster.control, "recovery")
    assert (view.cluster_uid, view.workloads, view.workloads_on_agents) == (uid, 0, 1)
    refused = await node.register()
    assert not refused.accepted
    assert "recovery mode" in refused.reason


async def test_false_counts_of_nodes_do_not_fail_the_view_of_the_mode(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    await cluster.stop()
    await cluster.store.wipe()
    await cluster.start()
    await until_mode(cluster.control, "recovery")
    for number in range(2):
        request = pb.RegisterNodeRequest(
            node_id=f"false{number}",
            capabilities=node.capabilities,
            grpc_endpoint=node.agent.endpoint,
            features=node.features,
            cluster_id=node.cluster_id,
            cluster_uid=node.cluster_uid,
            workload_count=2**31 - 1,
        )
        await cluster.control.stub.RegisterNode(request, timeout=10)

    view = await until_mode(cluster.control, "recovery")

    assert view.workloads_on_agents == 2**31 - 1
    assert node.agent.running() == {"web"}


@pytest.mark.parametrize("cluster", [{"node_lease": timedelta(seconds=1)}], indirect=True)
async def test_no_node_is_lost_because_of_an_outage_of_the_store(cluster: Cluster) -> None:
    node = await our_node(cluster)
    await running(cluster, "web")
    cluster.store.down = True
    await cluster.control.apply("other")
    await node.stop_heartbeats()
    await asyncio.sleep(1.2)  # its lease is over

    assert (await cluster.control.node("n1")).status == "Ready"
    cluster.store.down = False
    await until_mode(cluster.control, "normal")
    # Its lease was renewed; only now missing heartbeats count.
    assert (await cluster.control.node("n1")).status == "Ready"
    await cluster.control.until_node("n1", "NotReady")


async def test_mode_changes_are_events(cluster: Cluster) -> None:
    await cluster.join()
    cluster.store.down = True
    await cluster.control.apply("web")
    cluster.store.down = False
    await until_mode(cluster.control, "normal")

    request = pb.ListEventsRequest(kinds=["ModeChanged"])
    events = (await cluster.control.stub.ListEvents(request, timeout=10)).events
    assert [event.message for event in events] == [
        "degraded: the disk is full",
        "normal: the store is back",
    ]


async def test_recovery_commands_need_recovery_mode(cluster: Cluster) -> None:
    await cluster.join()
    await running(cluster, "web")

    for response in (
        await cluster.control.stub.RebuildFromAgents(pb.RebuildFromAgentsRequest(), timeout=10),
        await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=10),
    ):
        assert not response.accepted
        assert "expected recovery mode" in response.reason
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await cluster.control.stub.RestoreSnapshot(
            iter([pb.SnapshotChunk(data=b"not a snapshot")]), timeout=10
        )
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_missing_store_file_is_degraded_mode_until_it_returns(tmp_path: Path) -> None:
    path, unavailable = tmp_path / "store.db", tmp_path / "away.db"
    store = FaultyStore(await SqliteStore.open(path, monotonic=SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        node = await our_node(cluster)
        await running(cluster, "web")

        path.rename(unavailable)
        refused = await cluster.control.apply("late")
        assert "moved, removed or replaced" in refused.error_message
        assert (await mode(cluster.control)).mode == "degraded"
        assert node.agent.running() == {"web"}

        unavailable.rename(path)
        await until_mode(cluster.control, "normal")
        await running(cluster, "late")
    await store.store.close()
