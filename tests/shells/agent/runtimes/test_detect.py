"""Runtimes that are installed later, and runtimes that do not respond."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from own_libvirtd import OwnLibvirtd
from persys.agent.journal.store import Journal
from persys.agent.runtimes.detect import Detector
from persys.agent.runtimes.docker.mapping import OwnerLabels
from persys.agent.settings import AgentSettings
from persys.agent.uplink.heartbeat import PendingReports
from persys.agent.workloads import runtime_watch
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.spec import WorkloadType
from shells.agent.in_memory import MemoryRuntime, Node, a_running_agent


async def test_compose_and_git_that_are_installed_later_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    settings = AgentSettings(state_path=tmp_path / "state.db", vm_enabled=False)
    journal = Journal(settings.state_path, cluster_id="default", node_id=NodeId("n1"))
    owner = OwnerLabels("default", NodeId("n1"))
    clock, paths = SystemClock(), ThreadPathCalls()
    detector = Detector(
        settings, owner, journal, clock, paths, images_changed=PendingReports().add_node
    )

    assert not await detector.detect()
    install(programs / "docker-compose", "echo 2.20.0")
    assert await detector.detect()
    assert detector.found.types.keys() == {WorkloadType.CONTAINER, WorkloadType.COMPOSE}
    assert not await detector.detect()
    install(programs / "git", "true")
    assert await detector.detect()

    await detector.close()
    journal.close()


@pytest.mark.parametrize(
    ("off", "left"),
    [
        ("docker_enabled", set()),
        ("compose_enabled", {WorkloadType.CONTAINER}),
        ("vm_enabled", {WorkloadType.CONTAINER, WorkloadType.COMPOSE}),
    ],
)
async def test_a_disabled_runtime_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: str, left: set[WorkloadType]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    install(tmp_path / "docker-compose", "echo 2.20.0")
    chosen = {"docker_enabled": True, "compose_enabled": True, "vm_enabled": False, off: False}
    settings = AgentSettings(state_path=tmp_path / "state.db", **chosen)  # type: ignore[arg-type]  # flags
    journal = Journal(settings.state_path, cluster_id="default", node_id=NodeId("n1"))
    owner = OwnerLabels("default", NodeId("n1"))
    clock, paths = SystemClock(), ThreadPathCalls()
    detector = Detector(
        settings, owner, journal, clock, paths, images_changed=PendingReports().add_node
    )

    await detector.detect()

    assert detector.found.types.keys() == left
    await detector.close()
    journal.close()


def install(program: Path, line: str) -> None:
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)


class FlakyRuntime(MemoryRuntime):
    """A runtime whose ping succeeds, fails or hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.state = "well"

    async def ping(self) -> None:
        if self.state == "away":
            raise RuntimeUnavailableError("docker is not responding")
        if self.state == "broken":
            raise ValueError("not JSON")
        if self.state == "hanging":
            await asyncio.Event().wait()


@pytest.mark.parametrize("state", ["away", "broken", "hanging"])
async def test_a_runtime_that_does_not_respond_is_unavailable_until_it_does(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PING_INTERVAL_SECONDS", "PING_AGAIN_SECONDS", "PING_DEADLINE_SECONDS"):
        monkeypatch.setattr(runtime_watch, name, 0.05)
    runtime = FlakyRuntime()
    async with a_running_agent(Node(tmp_path, runtime=runtime)) as running:
        unavailable: Callable[[], list[WorkloadType]] = running.agent._node.watches.unavailable
        assert unavailable() == []

        runtime.state = state
        await running.until(lambda: unavailable() == [WorkloadType.CONTAINER], "it is unavailable")
        runtime.state = "well"
        await running.until(lambda: unavailable() == [], "it is available again")


async def test_a_libvirtd_that_is_started_later_is_detected(tmp_path: Path) -> None:
    libvirtd = OwnLibvirtd()
    settings = AgentSettings(
        state_path=tmp_path / "state.db",
        docker_enabled=False,
        libvirt_uri=libvirtd.uri,
        vm_accel="tcg",
        vm_images_dir=tmp_path / "images",
        vm_disks_dir=tmp_path / "disks",
        vm_dir=tmp_path / "vms",
    )
    journal = Journal(settings.state_path, cluster_id="default", node_id=NodeId("n1"))
    detector = Detector(
        settings,
        OwnerLabels("default", NodeId("n1")),
        journal,
        SystemClock(),
        ThreadPathCalls(),
        images_changed=PendingReports().add_node,
    )
    try:
        assert not await detector.detect()
        assert not detector.found.types
        await asyncio.to_thread(libvirtd.start)

        assert await detector.detect()
        await detector.found.types[WorkloadType.VM].ping()
        assert not await detector.detect()
    finally:
        await detector.close()
        await asyncio.to_thread(libvirtd.close)
        journal.close()
