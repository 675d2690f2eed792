"""Bind sources that cannot be read affect only their own workload."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from persys.agent.journal.store import Journal
from persys.agent.settings import AgentSettings
from persys.agent.volumes.detect import detect_drivers
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Actual
from shells.agent.in_memory import Node, RunningAgent, a_running_agent

Result = TypeVar("Result")
TOO_LONG = "/srv/" + "x" * 300


class HangingMountPaths(ThreadPathCalls):
    """Below /dead nothing returns."""

    def __init__(self) -> None:
        super().__init__(deadline_seconds=0.3)
        self.back = threading.Event()

    async def run(
        self,
        path: Path | str,
        call: Callable[[], Result],
        *,
        deadline_seconds: float | None = None,
        discard: Callable[[Result], object] | None = None,
    ) -> Result:
        def stuck() -> Result:
            self.back.wait()
            return call()

        called = stuck if str(path).startswith("/dead") else call
        return await super().run(path, called, deadline_seconds=deadline_seconds, discard=discard)


@pytest.fixture
def paths() -> Iterator[HangingMountPaths]:
    created = HangingMountPaths()
    yield created
    created.back.set()


@pytest.fixture
def node(tmp_path: Path, paths: HangingMountPaths) -> Iterator[Node]:
    (tmp_path / "book").mkdir()
    journal = Journal(tmp_path / "book" / "state.db", cluster_id="default", node_id=NodeId("n1"))
    volume_registry = VolumeRegistry(journal)
    settings = AgentSettings(storage_local_root=tmp_path / "volumes")
    drivers = detect_drivers(settings, volume_registry, Programs(), paths)
    yield Node(tmp_path, volumes=ManagedVolumes(drivers, volume_registry, SystemClock(), paths))
    journal.close()


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("{outside}/loop", "HostPathUnusable", "Too many levels of symbolic links"),
        ("/dead/share", "PathTimeout", "the file system did not respond"),
        ("/srv/not-there", "HostPathMissing", "does not exist"),
    ],
)
async def test_a_path_that_cannot_be_read_fails_its_workload_only(
    node: Node, path: str, code: str, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "loop").symlink_to("loop")
    async with a_running_agent(node) as running:
        await running.apply("bad", binds=(path.format(outside=outside),))
        await running.apply("good", binds=("/usr/share",))
        await running.until_actual("good", Actual.RUNNING)

        def is_refused() -> bool:
            status = running.journal.entries[WorkloadId("bad")].status
            return status.code == code and text in status.message

        await running.until(is_refused, f"bad fails with {code}")
        assert running.errors == []


async def test_a_path_that_is_too_long_does_not_end_the_agent(node: Node) -> None:
    async with a_running_agent(node) as running:
        response = await running.apply("bad", binds=(TOO_LONG,))
        if response.applied:
            await running.until_actual("bad", Actual.FAILED)
        await running.apply("good", binds=("/usr/share",))
        await running.until_actual("good", Actual.RUNNING)


async def test_many_binds_of_a_dead_mount_do_not_delay_others(node: Node) -> None:
    async with a_running_agent(node) as running:
        for number in range(10):
            await running.apply(f"bad-{number}", binds=("/dead/share",))
        await running.apply("good", binds=("/usr/share",))
        await running.until_actual("good", Actual.RUNNING)
        for number in range(10):
            await failed(running, f"bad-{number}")


async def failed(running: RunningAgent, name: str) -> None:
    await running.until_actual(name, Actual.FAILED)
