"""A scheduler that is stopped or killed and started again on the same store."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.store.sqlite import SqliteStore
from shells.scheduler.harness import (
    Cluster,
    Control,
    a_cluster,
    eventually,
    fast_settings,
    free_ports,
)
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node, a_node


async def test_a_restart_keeps_everything_and_sends_nothing_that_is_settled(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    for name in ("web", "stopped", "leaving"):
        await cluster.control.apply(name, cpu=500)
        await cluster.control.until(name, "Running")
    await cluster.control.want("stopped", "Stopped")
    await cluster.control.until("stopped", "Stopped")
    await cluster.control.delete("leaving")
    await cluster.control.until_gone("leaving")
    await cluster.control.apply("huge", cpu=100_000)
    before = {name: await cluster.control.workload(name) for name in ("web", "stopped", "huge")}
    orders = len(node.agent.applies)
    await cluster.stop()
    await cluster.start()

    for name, old in before.items():
        view = await cluster.control.workload(name)
        assert (view.status, view.desired_state) == (old.status, old.desired_state)
        assert (view.revision_id, view.epoch) == (old.revision_id, old.epoch)
        assert view.assigned_node_id == old.assigned_node_id
        assert view.reason.message == old.reason.message
    assert await cluster.control.names() == ["huge", "stopped", "web"]
    assert (await cluster.control.node("n1")).available_cpu_cores == 3
    # The next order is the first call that the agent gets.
    await cluster.control.apply("next")
    await cluster.control.until("next", "Running")
    assert [sent.id for sent in node.agent.applies[orders:]] == ["next"]


async def test_a_restart_keeps_the_scheduled_retry(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("RUNTIME_ERROR", "exit code 1")
    await cluster.control.apply("web")
    before = await cluster.control.until("web", "Failed")
    await cluster.stop()
    await cluster.start()
    after = await cluster.control.workload("web")
    assert (after.status, after.retry_attempts) == ("Failed", 1)
    assert after.retry_next_at == before.retry_next_at
    assert after.reason.message == "exit code 1"

    del node.agent.behaviour.failures["web"]
    cluster.clock.ahead += timedelta(seconds=10)
    await cluster.control.until("web", "Running")
    assert len(node.agent.applies) == 2


async def test_a_given_up_workload_stays_given_up_after_a_restart(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["web"] = ("IMAGE_NOT_FOUND", "no such image")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Failed")
    await cluster.stop()
    await cluster.start()
    cluster.clock.ahead += timedelta(days=1)
    await cluster.control.apply("other")
    await cluster.control.until("other", "Running")

    assert [sent.id for sent in node.agent.applies] == ["web", "other"]
    assert (await cluster.control.workload("web")).status == "Failed"


async def test_a_deletion_continues_after_a_restart(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.work_seconds = 0.5
    await cluster.control.delete("web")
    await cluster.stop()
    await cluster.start()

    await cluster.control.until_gone("web")


async def test_nodes_have_their_full_lease_after_a_restart(cluster: Cluster) -> None:
    node = await cluster.join()
    await node.stop_heartbeats()
    await cluster.stop()
    await cluster.start()

    assert (await cluster.control.node("n1")).status == "Ready"


async def test_a_workload_runs_on_the_embedded_store(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.db"
    settings = fast_settings()
    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
        stack.push_async_callback(store.close)
        cluster = await stack.enter_async_context(a_cluster(FaultyStore(store), settings))
        await cluster.join()
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")

    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
        stack.push_async_callback(store.close)
        cluster = await stack.enter_async_context(a_cluster(FaultyStore(store), settings))
        assert (await cluster.control.workload("web")).status == "Running"


class Process:
    """persys-scheduler as an operator starts it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port, self.metrics_port = free_ports(2)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environment = {
            **os.environ,
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(self.port),
            "METRICS_PORT": str(self.metrics_port),
            "PERSYS_STORE": f"sqlite:{self._directory / 'scheduler.db'}",
            "SCHEDULER_AGENT_STATUS_POLL_INTERVAL": "50ms",
            "SCHEDULER_RECONCILE_INTERVAL": "300ms",
        }
        with (self._directory / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "persys.scheduler",
                "-insecure",
                env=environment,
                stdout=log,
                stderr=log,
            )

    async def signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        async with asyncio.timeout(20):
            return await self._process.wait()

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.signal(signal.SIGKILL)


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Process]:
    process = Process(tmp_path)
    await process.start()
    yield process
    await process.end()


async def until_it_answers(control: Control) -> None:
    """A channel may report ready although its server has just been killed."""

    async def answers() -> bool:
        try:
            await control.summary()
        except grpc.aio.AioRpcError:
            return False
        return True

    await eventually(answers, lambda: "the scheduler to answer", within=30)


@pytest.fixture
async def control(process: Process) -> AsyncIterator[Control]:
    control = Control(process.port)
    await until_it_answers(control)
    yield control
    await control.channel.close()


@pytest.fixture
async def node(control: Control) -> AsyncIterator[Node]:
    async with a_node("n1", control.stub, cpu=32_000) as node:
        await node.join()
        yield node


async def test_acknowledged_requests_survive_kill_9_under_load(
    process: Process, control: Control, node: Node
) -> None:
    acknowledged: set[str] = set()

    async def apply(name: str) -> None:
        response = await control.apply(name, cpu=10, memory=10)
        if response.success:
            acknowledged.add(name)

    async with asyncio.TaskGroup() as group:
        crowd = [
            group.create_task(_unless_cut_off(apply(f"w{number:03}"))) for number in range(200)
        ]

        async def some() -> bool:
            return len(acknowledged) > 40

        await eventually(some, lambda: f"some answers: {len(acknowledged)}")
        await process.signal(signal.SIGKILL)
    assert all(task.done() for task in crowd)

    await process.start()
    await until_it_answers(control)
    kept = set(await control.names())
    assert acknowledged <= kept
    for name in sorted(kept):
        await control.until(name, "Running", within=30)
    view = await control.node("n1")
    assert round(view.available_cpu_cores * 1000) == 32_000 - 10 * len(kept)
    assert node.agent.running() == kept


async def _unless_cut_off(work: Awaitable[None]) -> None:
    """A call whose server died is neither refused nor acknowledged."""
    try:
        await work
    except grpc.aio.AioRpcError:
        return


async def test_a_killed_scheduler_resumes_after_a_restart(
    process: Process, control: Control, node: Node
) -> None:
    await control.apply("web")
    await control.until("web", "Running")
    await process.signal(signal.SIGKILL)
    await process.start()
    await until_it_answers(control)

    assert (await control.workload("web")).status == "Running"
    await control.delete("web")
    await control.until_gone("web")
    assert len(node.agent.applies) == 1


async def test_sigterm_ends_the_scheduler_cleanly(process: Process, control: Control) -> None:
    assert (await control.summary()).total_nodes == 0

    assert await process.signal(signal.SIGTERM) == 0
