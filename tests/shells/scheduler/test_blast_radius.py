"""An unexpected exception costs the key or the loop in which it was raised; the scheduler continues."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from persys.infra.aio.supervisor import Loop
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.scheduler.app import Scheduler
from persys.scheduler.dispatch.agent_client import Close, Stub, connect_over_grpc
from persys.store.memory import MemoryStore
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "explanation" / "architecture.md"
FAULTS = [OSError(28, "No space left on device"), RuntimeError("planted"), MemoryError()]


@asynccontextmanager
async def a_cluster_of(scheduler: Callable[..., Scheduler]) -> AsyncIterator[Cluster]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    async with a_cluster(store, fast_settings(), scheduler=scheduler) as cluster:
        yield cluster
    await store.store.close()


def all_loops() -> tuple[Loop, ...]:
    return Scheduler(
        fast_settings(), MemoryStore(SystemClock().monotonic), SystemClock(), name="test"
    ).loops()


def failing_once(loop: Loop) -> Loop:
    has_failed = False

    async def run() -> None:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            await asyncio.sleep(0)
            raise RuntimeError("planted")
        await loop.run()

    return replace(loop, run=run)


def with_a_faulty_loop(name: str) -> Callable[..., Scheduler]:
    class Faulty(Scheduler):
        def loops(self) -> tuple[Loop, ...]:
            return tuple(
                failing_once(loop) if loop.name == name else loop for loop in super().loops()
            )

    return Faulty


@pytest.mark.parametrize("name", [loop.name for loop in all_loops() if not loop.ends_process])
async def test_a_loop_that_fails_is_run_again_and_workloads_converge(name: str) -> None:
    async with a_cluster_of(with_a_faulty_loop(name)) as cluster:
        await cluster.join()

        await cluster.control.apply("web")

        await cluster.control.until("web", "Running")


@pytest.mark.parametrize("name", [loop.name for loop in all_loops() if loop.ends_process])
async def test_the_scheduler_ends_when_an_essential_loop_fails(name: str) -> None:
    scheduler = with_a_faulty_loop(name)(
        fast_settings(), MemoryStore(SystemClock().monotonic), SystemClock(), name="test"
    )
    await scheduler.take_over()

    with pytest.raises(ExceptionGroup) as error:
        async with asyncio.timeout(10):
            await scheduler.lead()

    assert error.value.subgroup(RuntimeError)
    await scheduler.close()


def test_the_architecture_document_lists_every_loop() -> None:
    text = ARCHITECTURE.read_text()

    for loop in all_loops():
        ends = "exits the process" if loop.ends_process else "restarted"
        assert f"| `{loop.name}` | {ends} |" in text, loop


class FailingRandom(Random):
    """A random source that fails on demand: every decision needs a number."""

    fault: Exception | None = None

    def random(self) -> float:
        if self.fault is not None:
            raise self.fault
        return super().random()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_a_workload_whose_step_fails_is_set_aside_and_decided_later(fault: Exception) -> None:
    dice = FailingRandom()

    def scheduler(*args: Any, **options: Any) -> Scheduler:
        return Scheduler(*args, **options, random=dice)

    async with a_cluster_of(scheduler) as cluster:
        node = await cluster.join()
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")

        dice.fault = fault
        node.agent.copies.clear()  # so that there is something to decide

        async def back_off() -> bool:
            view = await cluster.control.workload("web")
            return view.reason.code == "InternalError"

        await eventually(back_off, lambda: "web to be set aside")
        view = await cluster.control.workload("web")
        assert type(fault).__name__ in view.reason.message
        assert view.failure_reason == "RUNTIME_ERROR"
        assert view.reason.retryable
        assert view.reason.HasField("next_retry_at")

        dice.fault = None

        async def running_again() -> bool:
            view = await cluster.control.workload("web")
            return view.status == "Running" and not view.reason.code and bool(node.agent.running())

        await eventually(running_again, lambda: "web to run again", within=30)


async def test_a_request_that_fails_unexpectedly_fails_alone() -> None:
    dice = FailingRandom()

    def scheduler(*args: Any, **options: Any) -> Scheduler:
        return Scheduler(*args, **options, random=dice)

    async with a_cluster_of(scheduler) as cluster:
        await cluster.join()
        dice.fault = RuntimeError("planted")

        with pytest.raises(grpc.aio.AioRpcError, match="internal error") as failed:
            await cluster.control.apply("web")

        assert failed.value.code() is grpc.StatusCode.INTERNAL
        dice.fault = None
        assert (await cluster.control.apply("web")).success
        await cluster.control.until("web", "Running")


class FaultyStub:
    """The real stub, except that orders for some workloads raise an unexpected error."""

    def __init__(self, stub: Stub, faults: dict[str, Exception]) -> None:
        self._stub = stub
        self._faults = faults

    def __getattr__(self, method: str) -> Any:
        return getattr(self._stub, method)

    def ApplyWorkload(  # noqa: N802
        self, request: agent_pb2.ApplyWorkloadRequest, **options: Any
    ) -> Coroutine[Any, Any, agent_pb2.ApplyWorkloadResponse]:
        if (fault := self._faults.get(request.id)) is not None:
            raise fault
        response: Coroutine[Any, Any, agent_pb2.ApplyWorkloadResponse]
        response = self._stub.ApplyWorkload(request, **options)
        return response


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_an_order_that_fails_unexpectedly_is_sent_again_and_delays_no_other(
    fault: Exception,
) -> None:
    faults = {"bad": fault}

    def connect(node_id: NodeId, endpoint: str) -> tuple[Any, Close]:
        stub, close = connect_over_grpc(node_id, endpoint)
        return FaultyStub(stub, faults), close

    def scheduler(*args: Any, **options: Any) -> Scheduler:
        return Scheduler(*args, **(options | {"connect": connect}))

    async with a_cluster_of(scheduler) as cluster:
        await cluster.join()

        await cluster.control.apply("bad")
        await cluster.control.apply("good")

        await cluster.control.until("good", "Running")

        async def shown() -> bool:
            view = await cluster.control.workload("bad")
            return "internal error" in view.reason.message

        await eventually(shown, lambda: "the reason to be shown")
        faults.clear()
        await cluster.control.until("bad", "Running", within=30)


async def test_contained_errors_are_counted(cluster: Cluster) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.settings.metrics_port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(10):
        text = (await reader.read()).decode()
    writer.close()

    assert "persys_internal_errors_total" in text


async def test_internal_errors_of_an_agent_are_kept_with_its_node() -> None:
    replicas: list[Scheduler] = []

    def scheduler(*args: Any, **options: Any) -> Scheduler:
        replicas.append(Scheduler(*args, **options))
        return replicas[-1]

    async with a_cluster_of(scheduler) as cluster:
        await cluster.join("n1")
        error = pb.InternalError(component="agent", where="worker", key="web", text="x", count=3)

        await cluster.control.stub.Heartbeat(
            pb.HeartbeatRequest(node_id="n1", internal_errors=[error]), timeout=10
        )

        async def kept() -> bool:
            known = replicas[-1].cluster.nodes[NodeId("n1")].internal_errors
            return [(one.where, one.key, one.count) for one in known] == [("worker", "web", 3)]

        assert await kept()
