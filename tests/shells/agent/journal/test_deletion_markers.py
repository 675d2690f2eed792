"""Deletion markers: a late order for a deleted workload is refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from persys.agent.api.tunnel_server import AbortedError
from persys.agent.journal import store as journal
from persys.agent.journal.records import DeletionMarker, JournalChange
from persys.model.ids import WorkloadId
from persys.model.status import Actual
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.in_memory import Node, RunningAgent, a_context, a_running_agent

WEB = WorkloadId("web")


async def apply(running: RunningAgent, name: str, epoch: int) -> bool:
    """Returns whether the order was accepted."""
    request = agent_pb2.ApplyWorkloadRequest(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(container=agent_pb2.ContainerSpec(image="app:1")),
        epoch=epoch,
    )
    try:
        response = await running.call(running.api.ApplyWorkload(request, a_context()))
    except AbortedError:
        return False
    return bool(response.applied)


async def delete(running: RunningAgent, name: str, epoch: int) -> str:
    request = agent_pb2.DeleteWorkloadRequest(id=name, epoch=epoch)
    response = await running.call(running.api.DeleteWorkload(request, a_context()))
    return str(response.message)


async def run_and_delete(running: RunningAgent, name: str, epoch: int) -> None:
    assert await apply(running, name, epoch)
    await running.until_actual(name, Actual.RUNNING)
    await delete(running, name, epoch)
    await running.until_actual(name, None)


async def acknowledge(running: RunningAgent) -> None:
    """The scheduler acknowledges all deletions."""
    describe = [
        replace(marker, acknowledged=True) for marker in running.journal.deletion_markers.values()
    ]
    await running.call(running.journal.commit(JournalChange(deletion_markers=describe)))


@pytest.mark.parametrize("restarted", [False, True])
async def test_an_apply_of_a_deleted_assignment_is_refused_after_the_acknowledgement(
    tmp_path: Path, restarted: bool
) -> None:
    node = Node(tmp_path)
    async with a_running_agent(node) as running:
        await run_and_delete(running, "web", 5)
        await acknowledge(running)
        assert restarted or not await apply(running, "web", 5)
    async with a_running_agent(node) as running:
        assert not await apply(running, "web", 4)
        assert not await apply(running, "web", 5)
        assert running.status("web") is None

        assert await apply(running, "web", 6)


async def test_an_apply_that_arrives_after_its_delete_is_refused(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        assert await delete(running, "web", 5) == "workload not found: web"

        assert not await apply(running, "web", 5)
        assert await apply(running, "web", 6)


async def test_a_repeated_delete_of_an_unknown_workload_writes_nothing(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await delete(running, "web", 5)
        before = running.journal.deletion_markers[WEB]
        await delete(running, "web", 5)
        await delete(running, "web", 0)

        assert running.journal.deletion_markers[WEB] is before


async def test_an_apply_during_its_delete_is_refused(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        assert await apply(running, "web", 5)
        await running.until_actual("web", Actual.RUNNING)
        await delete(running, "web", 5)

        assert not await apply(running, "web", 5)
        await running.until_actual("web", None)


@pytest.mark.parametrize("restarted", [False, True])
async def test_older_deletions_refuse_by_their_highest_epoch(
    tmp_path: Path, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "DELETION_MARKERS_MAX", 2)
    node = Node(tmp_path)
    async with a_running_agent(node) as running:
        for epoch, name in enumerate(("web", "mail", "db", "cache"), start=5):
            await run_and_delete(running, name, epoch)
        assert set(running.journal.deletion_markers) == {"db", "cache"}
        assert restarted or not await apply(running, "web", 5)
    async with a_running_agent(node) as running:
        assert not await apply(running, "web", 5)
        assert not await apply(running, "never-here", 6)
        assert await apply(running, "never-here", 7)
        assert not await apply(running, "db", 7)
        assert await apply(running, "db", 8)


async def test_the_journal_does_not_grow_with_deletions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "DELETION_MARKERS_MAX", 3)
    async with a_running_agent(Node(tmp_path)) as running:
        for epoch in range(1, 40):
            await delete(running, f"web-{epoch}", epoch)
        assert len(running.journal.deletion_markers) == 3
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        assert connection.execute("SELECT count(*) FROM burials").fetchone() == (3,)
        assert connection.execute("SELECT epoch FROM deleted_epochs").fetchall() == [(36,)]


async def test_epochs_of_another_cluster_refuse_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "DELETION_MARKERS_MAX", 1)
    async with a_running_agent(Node(tmp_path)) as running:
        await running.call(running.journal.commit(JournalChange(cluster_uid="first")))
        await run_and_delete(running, "web", 50)
        await run_and_delete(running, "mail", 51)
        await running.call(running.journal.commit(JournalChange(cluster_uid="second")))

        assert await apply(running, "web", 1)
        assert await apply(running, "mail", 2)


async def test_an_order_for_a_workload_with_a_damaged_row_is_accepted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with a_running_agent(node) as running:
        assert await apply(running, "web", 5)
        await running.until_actual("web", Actual.RUNNING)
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
        connection.execute("UPDATE entries SET record = x'00'")
        connection.execute("INSERT INTO deleted_epochs VALUES ('', 9)")
    async with a_running_agent(node) as running:
        assert not await apply(running, "mail", 5)
        assert await apply(running, "web", 5)


async def test_a_delete_of_an_unknown_workload_makes_no_garbage(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await delete(running, "web", 5)

        assert running.journal.deletion_markers[WEB] == DeletionMarker(
            WEB, 5, acknowledged=True, was_here=False
        )
