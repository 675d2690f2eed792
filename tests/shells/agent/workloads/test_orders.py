"""Orders are processed in tasks of the agent: a caller that disconnects leaves no partial state."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from persys.agent.api.tunnel_server import AbortedError
from persys.agent.app import ESSENTIAL_PARTS
from persys.agent.journal.records import JournalChange
from persys.core.agent.progress import Artefact, Condition
from persys.model.ids import WorkloadId
from persys.model.spec import RestartPolicy
from persys.model.status import Actual, Failure
from persys.model.workload import Order
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.in_memory import MemoryRuntime, Node, RunningAgent, a_context, a_running_agent

AWAITS_MAX = 40
WEB = WorkloadId("web")


async def cancelled_after(turns: int, call: Coroutine[Any, Any, Any]) -> bool:
    """Run a handler and cancel it after a number of loop iterations. Returns whether it had ended before."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(call)
        for _ in range(turns):
            await asyncio.sleep(0)
        ended = task.done()
        task.cancel()
    return ended


class CountedStarts(MemoryRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.starts = 0

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        self.starts += 1
        return await super().start(order, artefact)

    def complete(self, workload_id: WorkloadId) -> None:
        ended = {"exit_code": 0, "restart": RestartPolicy("no"), "condition": Condition.EXITED}
        self.artefacts[workload_id] = replace(self.artefacts[workload_id], **ended)


async def test_completed_work_does_not_run_again_when_its_inspection_has_failed(
    tmp_path: Path,
) -> None:
    runtime = CountedStarts()
    async with a_running_agent(Node(tmp_path, runtime=runtime)) as running:
        await running.apply("web")
        await running.until_actual("web", Actual.RUNNING)
        runtime.complete(WEB)
        await running.until_actual("web", Actual.STOPPED)
        entry = running.journal.entries[WEB]
        failed = replace(entry.status, actual=Actual.FAILED)
        running.journal.update(replace(entry, status=failed))

        await running.apply("web")

        await running.until_actual("web", Actual.STOPPED)
        assert runtime.starts == 1


async def test_a_cancelled_apply_completes(tmp_path: Path) -> None:
    names = [f"web-{turns}" for turns in range(1, AWAITS_MAX)]
    async with a_running_agent(Node(tmp_path)) as running:
        for turns, name in enumerate(names, start=1):
            await cancelled_after(turns, running.apply(name))

        for name in names:
            await running.until_actual(name, Actual.RUNNING)


async def test_a_cancelled_delete_completes(tmp_path: Path) -> None:
    names = [f"web-{turns}" for turns in range(1, AWAITS_MAX)]
    async with a_running_agent(Node(tmp_path)) as running:
        for turns, name in enumerate(names, start=1):
            await running.apply(name)
            await running.until_actual(name, Actual.RUNNING)
            await cancelled_after(turns, running.delete(name))

        for name in names:
            await running.until_actual(name, None)


async def test_a_handler_cancelled_before_its_start_has_no_effect(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await cancelled_after(0, running.apply("web"))
        await running.call(running.agent._shared.owned.finish("test", "", short_pause))

        assert running.status("web") is None


async def short_pause() -> None:
    await asyncio.sleep(0.05)


class SlowThread(ThreadPoolExecutor):
    """A thread whose work waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.open = threading.Event()
        self.open.set()

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        def late() -> Any:
            self.open.wait()
            return fn(*arguments, **named)

        return super().submit(late)


async def test_an_acknowledged_delete_is_not_undone_by_a_cancelled_apply(
    tmp_path: Path,
) -> None:
    disk = SlowThread()
    async with a_running_agent(Node(tmp_path, journal_thread=disk)) as running:
        disk.open.clear()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await running.apply("web")
        async with asyncio.TaskGroup() as group:
            deleting = group.create_task(running.delete("web"))
            await asyncio.sleep(0.05)
            assert not deleting.done()  # it waits for the apply that is being written
            disk.open.set()

        assert deleting.result().message == "delete accepted"
        await running.until_actual("web", None)
        await asyncio.sleep(0.1)
        assert running.status("web") is None
        assert WEB in running.journal.deletion_markers


async def test_cancelled_streamed_calls_release_everything(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.apply("web")
        request = agent_pb2.LogsRequest(workload_id="web", follow=True)
        for turns in range(1, 10):
            await cancelled_after(turns, _logs(running, request))

        await running.delete("web")
        await running.until_actual("web", None)


async def _logs(running: RunningAgent, request: agent_pb2.LogsRequest) -> None:
    with suppress(AbortedError):
        await running.api.StreamLogs(request, a_context())


async def test_only_two_parts_end_the_agent(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        assert running.agent.parts(1).keys() > ESSENTIAL_PARTS

    assert {"journal", "requests"} == ESSENTIAL_PARTS


async def ordered(running: RunningAgent, epoch: int, revision: str) -> bool:
    request = agent_pb2.ApplyWorkloadRequest(
        id="web",
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id=revision,
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(container=agent_pb2.ContainerSpec(image="app:1")),
        epoch=epoch,
    )
    try:
        response = await running.call(running.api.ApplyWorkload(request, a_context()))
    except AbortedError:
        return False
    return bool(response.applied)


async def test_epochs_of_a_previous_cluster_refuse_nothing(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.journal.commit(JournalChange(cluster_uid="lost"))
        assert await ordered(running, 15, "r1")
        assert not await ordered(running, 2, "r2")

        await running.journal.commit(JournalChange(cluster_uid="new"))

        assert await ordered(running, 2, "r2")
        assert not await ordered(running, 1, "r3")


async def test_a_stack_is_parsed_outside_the_event_loop(tmp_path: Path) -> None:
    request = agent_pb2.ApplyWorkloadRequest(
        id="stack",
        type=agent_pb2.WORKLOAD_TYPE_COMPOSE,
        revision_id="r1",
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(
            compose=agent_pb2.ComposeSpec(
                compose_yaml=b64encode(b"services: {web: {image: app:1}}").decode()
            )
        ),
    )
    threads = SlowThread()
    asyncio.get_running_loop().set_default_executor(threads)
    async with a_running_agent(Node(tmp_path)) as running, asyncio.TaskGroup() as group:
        threads.open.clear()
        applying = group.create_task(running.call(running.api.ApplyWorkload(request, a_context())))
        await running.apply("web")
        await running.until_actual("web", Actual.RUNNING)
        assert not applying.done()
        threads.open.set()

    assert applying.result().status.actual_state == agent_pb2.ACTUAL_STATE_FAILED  # no Compose here
