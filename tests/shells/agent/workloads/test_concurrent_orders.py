"""Orders that arrive during work on an older order are not overwritten by its results."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from persys.core.agent.progress import Artefact, Condition
from persys.model.ids import WorkloadId
from persys.model.status import Actual, Failure
from persys.model.workload import Order
from shells.agent.in_memory import MemoryRuntime, Node, RunningAgent, a_running_agent

WEB = WorkloadId("web")


class GatedDisk(ThreadPoolExecutor):
    """A disk whose writes wait while its gate is closed."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_open = threading.Event()
        self.is_open.set()
        self.held = 0

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> "Future[Any]":
        self.held += not self.is_open.is_set()

        def late() -> Any:
            self.is_open.wait()
            return fn(*arguments, **named)

        return super().submit(late)


class GatedRuntime(MemoryRuntime):
    """A runtime whose inspections wait while its gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.held_inspections = 0
        self.closes_after_removal = False
        self.fails_once = False
        self.started: list[tuple[str, str]] = []  # the revisions of the order and of the container

    async def inspect(self, order: Order) -> Artefact | None:
        self.held_inspections += not self.is_open.is_set()
        await self.is_open.wait()
        if self.fails_once:
            self.fails_once = False
            self.is_open.clear()
            raise RuntimeError("an unexpected answer")
        return await super().inspect(order)

    async def discard(self, order: Order) -> Failure | None:
        """The last step of a removal."""
        if self.closes_after_removal:
            self.closes_after_removal = False
            self.is_open.clear()
        return await super().discard(order)

    async def start(self, order: Order, artefact: Artefact) -> Failure | None:
        self.started.append((order.revision, artefact.revision))
        return await super().start(order, artefact)

    def exit(self) -> None:
        self._set(self.artefacts[WEB], condition=Condition.CREATED)


@asynccontextmanager
async def inspect_during_order(
    running: RunningAgent, runtime: GatedRuntime, disk: GatedDisk, **order: Any
) -> Any:
    """Release a blocked inspection while another order is being written."""
    await running.until(lambda: runtime.held_inspections > 0, "a look is held")
    disk.is_open.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(running.apply("web", **order))
        await running.until(lambda: disk.held > 0, "the order is being written")
        runtime.is_open.set()
        await asyncio.sleep(0.1)  # for what must not happen
        disk.is_open.set()
    yield


@pytest.fixture
def disk() -> GatedDisk:
    return GatedDisk()


async def test_a_removal_that_ends_during_the_write_of_a_new_order_keeps_the_order(
    tmp_path: Path, disk: GatedDisk
) -> None:
    runtime = GatedRuntime()
    async with a_running_agent(Node(tmp_path, runtime=runtime, journal_thread=disk)) as running:
        await running.apply("web")
        await running.until_actual("web", Actual.RUNNING)
        runtime.closes_after_removal = True
        await running.delete("web")

        async with inspect_during_order(running, runtime, disk, revision="r2"):
            await running.until_actual("web", Actual.RUNNING)

        assert running.journal.entries[WEB].order.revision == "r2"


async def test_a_start_that_begins_during_the_write_of_a_new_order_keeps_the_order(
    tmp_path: Path, disk: GatedDisk
) -> None:
    runtime = GatedRuntime()
    async with a_running_agent(Node(tmp_path, runtime=runtime, journal_thread=disk)) as running:
        await running.apply("web")
        await running.until_actual("web", Actual.RUNNING)
        runtime.is_open.clear()
        runtime.exit()

        async with inspect_during_order(running, runtime, disk, revision="r2"):
            await running.until(
                lambda: runtime.artefacts[WEB].revision == "r2", "the new revision runs"
            )

        assert running.journal.entries[WEB].order.revision == "r2"


async def test_a_container_of_an_older_order_is_not_started_for_a_new_order(
    tmp_path: Path, disk: GatedDisk
) -> None:
    runtime = GatedRuntime()
    async with a_running_agent(Node(tmp_path, runtime=runtime, journal_thread=disk)) as running:
        await running.apply("web")
        await running.until_actual("web", Actual.RUNNING)
        runtime.is_open.clear()
        runtime.exit()

        async with inspect_during_order(running, runtime, disk, revision="r2"):
            await running.until(lambda: ("r2", "r2") in runtime.started, "the new revision starts")

        assert runtime.started == [("r1", "r1"), ("r2", "r2")]


async def test_an_inspection_that_fails_during_the_write_of_a_new_assignment_sets_unknown(
    tmp_path: Path, disk: GatedDisk
) -> None:
    runtime = GatedRuntime()
    async with a_running_agent(Node(tmp_path, runtime=runtime, journal_thread=disk)) as running:
        await running.apply("web", epoch=1)
        await running.until_actual("web", Actual.RUNNING)
        runtime.is_open.clear()
        runtime.fails_once = True

        async with inspect_during_order(running, runtime, disk, epoch=2):
            await running.until(
                lambda: "an unexpected answer" in running.journal.entries[WEB].status.message,
                "the failure is reported",
            )

        assert running.journal.entries[WEB].order.epoch == 2
        runtime.is_open.set()
