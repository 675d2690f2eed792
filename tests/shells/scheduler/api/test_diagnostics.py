"""Internal errors of the control plane, as `doctor` reads them."""

from collections.abc import AsyncIterator

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.model.ids import WorkloadId
from persys.scheduler.api.drift import DriftApi
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as running:
        yield running
    await store.store.close()


async def diagnostics(cluster: Cluster) -> pb.DiagnosticsView:
    view: pb.DiagnosticsView = await cluster.control.stub.GetDiagnostics(
        pb.GetDiagnosticsRequest(), timeout=10
    )
    return view


async def test_a_healthy_cluster_has_nothing_to_show(cluster: Cluster) -> None:
    assert await diagnostics(cluster) == pb.DiagnosticsView()


async def test_a_defect_in_a_call_is_shown_and_other_calls_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_api: DriftApi, _request: object, _context: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(DriftApi, "ListDrifts", broken)
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings()) as cluster:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await cluster.control.stub.ListDrifts(pb.ListDriftsRequest(), timeout=10)
            assert failed.value.code() is grpc.StatusCode.INTERNAL

        (error,) = (await diagnostics(cluster)).internal_errors
        assert (error.component, error.where, error.key) == ("scheduler", "rpc", "ListDrifts")
        assert (error.text, error.count) == ("ZeroDivisionError: a defect", 2)
        assert await cluster.control.names() == []
    await store.store.close()


async def test_diagnostics_of_an_agent_are_shown_with_its_node(cluster: Cluster) -> None:
    await cluster.join("n1")
    error = pb.InternalError(component="agent", where="step", key="web", text="boom", count=3)
    error.last_at.FromDatetime(SystemClock().now())
    heartbeat = pb.HeartbeatRequest(node_id="n1", internal_errors=[error])
    await cluster.control.stub.Heartbeat(heartbeat, timeout=10)

    async def shown() -> bool:
        await cluster.control.stub.Heartbeat(heartbeat, timeout=10)
        nodes = (await diagnostics(cluster)).nodes
        return [(one.node_id, one.internal_errors[0].text) for one in nodes] == [("n1", "boom")]

    await eventually(shown, lambda: "the error of the agent to be shown")


async def test_a_record_that_cannot_be_read_is_shown_with_the_reason(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    await cluster.stop()
    key = keys.workload_key(WorkloadId("web"))
    await cluster.store.commit([Unit(puts={key: b"garbage"})])
    await cluster.start()

    (record,) = (await diagnostics(cluster)).quarantined
    assert record.key == key
    assert record.reason
