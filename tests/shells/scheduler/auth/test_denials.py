"""Denied requests are recorded within a limit; reports about workloads of other nodes change nothing."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from root_ca import Root
from shells.scheduler.harness import Cluster, Control, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore


@pytest.fixture
async def store() -> AsyncIterator[FaultyStore]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    yield store
    await store.store.close()


@pytest.fixture
async def cluster(root: Root, store: FaultyStore) -> AsyncIterator[Cluster]:
    tls, user = root.tls(Role.SCHEDULER, "s1"), root.tls(Role.ADMIN, "me")
    async with a_cluster(store, fast_settings(), tls=tls, user=user) as running:
        yield running


async def refused(cluster: Cluster, tls: Tls, count: int) -> None:
    control = Control(cluster.settings.grpc_port, tls)
    try:
        for _ in range(count):
            with pytest.raises(grpc.aio.AioRpcError):
                await control.delete("w")
    finally:
        await control.channel.close()


async def denials(control: Control) -> list[pb.EventView]:
    request = pb.ListEventsRequest(kinds=["AccessDenied"])
    return list((await control.stub.ListEvents(request, timeout=10)).events)


async def until_reported(cluster: Cluster, count: int) -> list[pb.EventView]:
    async def is_recorded() -> bool:
        return len(await denials(cluster.control)) >= count

    await eventually(is_recorded, lambda: "the denial to be told")
    return await denials(cluster.control)


async def test_a_repeated_denial_is_one_event(cluster: Cluster, root: Root) -> None:
    await refused(cluster, root.tls(Role.VIEWER, "eve"), 50)
    await refused(cluster, root.tls(Role.VIEWER, "bob"), 2)
    first, second = await until_reported(cluster, 2)
    assert first.message.startswith("viewer/eve at ipv4:127.0.0.1:")
    assert "was denied DeleteWorkload (role)" in first.message
    assert second.message.startswith("viewer/bob at ")
    page = await asyncio.to_thread(metrics, cluster)
    assert 'denied_total{method="DeleteWorkload",role="viewer"} 52.0' in page


async def test_an_agent_that_acts_for_another_node_is_an_event(
    cluster: Cluster, root: Root
) -> None:
    control = Control(cluster.settings.grpc_port, root.tls(Role.AGENT, "n1"))
    heartbeat = control.stub.Heartbeat(pb.HeartbeatRequest(node_id="n2"), timeout=10)
    with pytest.raises(grpc.aio.AioRpcError):
        await heartbeat
    await control.channel.close()
    (event,) = await until_reported(cluster, 1)
    assert "agent/n1" in event.message
    assert "denied Heartbeat (node)" in event.message


async def test_a_caller_of_another_trust_domain_is_an_event_without_a_name(
    cluster: Cluster, root: Root
) -> None:
    await refused(cluster, root.tls(Role.ADMIN, "me", trust_domain="elsewhere"), 1)
    (event,) = await until_reported(cluster, 1)
    assert "denied DeleteWorkload (identity)" in event.message


async def test_no_event_is_written_without_a_denial(cluster: Cluster, store: FaultyStore) -> None:
    before = store.transactions
    await cluster.control.names()
    await cluster.control.summary()
    assert store.transactions == before


async def test_a_report_about_a_workload_of_another_node_changes_nothing(
    store: FaultyStore,
) -> None:
    async with a_cluster(store, fast_settings()) as insecure:
        await insecure.join("n1")
        await insecure.control.apply("web")
        await insecure.control.until("web", "Running")
        await insecure.join("n2")
        events = await insecure.control.stub.ListEvents(
            pb.ListEventsRequest(workload_id="web"), timeout=10
        )
        for state in ("Failed", "Stopped", "Deleted"):
            forged = pb.HeartbeatRequest(
                node_id="n2",
                workload_statuses=[
                    pb.WorkloadStatus(workload_id="web", state=state, epoch=99, message="a lie")
                ],
                workload_usage=[pb.WorkloadUsageSnapshot(workload_id="web", memory_bytes=1 << 60)],
                removed_workload_ids=["web"],
            )
            await insecure.control.stub.Heartbeat(forged, timeout=10)

        async def counted() -> bool:
            page = await asyncio.to_thread(metrics, insecure)
            found = re.search(r"^persys_scheduler_ignored_reports_total (\S+)$", page, re.M)
            return found is not None and float(found[1]) >= 2

        await eventually(counted, lambda: "the lies to be counted")
        view = await insecure.control.workload("web")
        assert (view.status, view.assigned_node_id) == ("Running", "n1")
        assert "a lie" not in str(view)
        now = await insecure.control.stub.ListEvents(
            pb.ListEventsRequest(workload_id="web"), timeout=10
        )
        assert now.events == events.events


def metrics(cluster: Cluster) -> str:
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text
