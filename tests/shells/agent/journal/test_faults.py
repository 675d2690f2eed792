"""A journal that cannot be written loses no acknowledged order, causes no busy loop, and is reported.

The kinds of writes are derived from the fields of `JournalChange`: a new kind without a case fails a test.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from builders import a_supervisor
from persys.agent.api.tunnel_server import AbortedError
from persys.agent.journal import store as journal_health
from persys.agent.journal import store as journal_store
from persys.agent.journal.records import (
    DeletionMarker,
    Entry,
    Image,
    JournalChange,
    ReportedStatus,
    StoredNetworks,
    statements_of,
)
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.core.networks.addresses import MemberAddress
from persys.errors import StoreUnavailableError
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.network import NetworkConfiguration
from persys.model.node import Volume
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.status import Actual
from persys.model.workload import Desired, Order
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.in_memory import Node, RunningAgent, a_context, a_running_agent
from shells.agent.journal.faulty_connection import FAULTS, HANG, FaultyConnection

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WEB = WorkloadId("web")
ORDER = Order(WEB, WorkloadType.CONTAINER, Revision("r1"), 1, Desired.RUNNING, ContainerSpec("app"))
ENTRY = Entry(ORDER, 1, ActionId("a1"), NOW, NOW, ReportedStatus(Actual.PENDING, NOW))
# One value for each field of a change; `test_every_kind_of_write_has_an_example` misses a new one.
EXAMPLES: dict[str, Any] = {
    "entry": ENTRY,
    "actions": [Action(ActionId("a1"), WEB, ActionKind.APPLY, ActionState.PENDING, NOW)],
    "deleted": WEB,
    "deletion_markers": [DeletionMarker(WEB, 1)],
    "undeleted": WEB,
    "cluster_uid": "c1",
    "instance_id": "i1",
    "images": [Image("app:1", "sha", NOW, NOW)],
    "images_removed": ["app:1"],
    "volumes": [Volume(WEB, "data", "local", NOW)],
    "volumes_removed": [(WEB, "data")],
    "actions_removed": [ActionId("a1")],
    "contact_at": NOW,
    "resuming": WEB,
    "survived": WEB,
    "networks": StoredNetworks(NetworkConfiguration("v1")),
    "addresses": [MemberAddress("backend", WEB, "10.128.0.2")],
    "addresses_removed": [MemberAddress("backend", WEB, "10.128.0.3")],
}
ANYWHERE = ("BEGIN", "COMMIT", "INSERT INTO entries", "INSERT INTO actions")
DEFECTS = {"RuntimeError"}  # of this program; all else comes from the disk or what is written
FAULTY_SECONDS = 1.0


def new_state(directory: Path) -> tuple[Journal, FaultyConnection]:
    created = Journal(directory / "state.db", cluster_id="default", node_id=NodeId("n1"))
    faulty = FaultyConnection(created.connection)
    created.connection = faulty  # type: ignore[assignment]  # a proxy of the connection
    created.begin_run({})
    return created, faulty


@asynccontextmanager
async def writing(directory: Path) -> AsyncIterator[tuple[Journal, FaultyConnection]]:
    created, faulty = new_state(directory)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(created.run(a_supervisor(), Metrics().journal.written))
        yield created, faulty
        faulty.restore()
        running.cancel()
    created.close()


def written_by(field: str) -> set[str]:
    """The statements that only this kind of write has."""
    change = JournalChange(**{field: EXAMPLES[field]})
    return {statement.sql for statement in statements_of(change, lambda entry: entry)}


def test_every_kind_of_write_has_an_example() -> None:
    assert {field.name for field in fields(JournalChange)} == EXAMPLES.keys()
    assert all(written_by(field) for field in EXAMPLES)


@pytest.mark.parametrize("field", EXAMPLES)
async def test_a_failed_write_affects_only_its_own_change(field: str, tmp_path: Path) -> None:
    own, change = written_by(field), JournalChange(**{field: EXAMPLES[field]})
    other = "cluster_uid" if field != "cluster_uid" else "instance_id"
    async with writing(tmp_path) as (journal, faulty), asyncio.TaskGroup() as group:
        for count, fault in enumerate(FAULTS, start=1):
            before = remembered(journal)
            faulty.fail(fault, lambda sql: sql in own)
            harmless: dict[str, Any] = {other: f"{other}-{fault}"}
            beside = group.create_task(journal.commit(JournalChange(**harmless)))
            with pytest.raises(StoreUnavailableError, match="journal: "):
                await journal.commit(change)
            await beside
            assert faulty.struck >= count
            assert remembered(journal) == before
            assert getattr(journal, other) == f"{other}-{fault}"
            faulty.restore()

        await journal.commit(change)
        assert journal.problem() == ""


def remembered(journal: Journal) -> list[dict[Any, Any]]:
    """The state in memory that each kind of write changes, except the given one."""
    kept = (
        journal.entries,
        journal.actions,
        journal.volumes,
        journal.images,
        journal.deletion_markers,
    )
    return [dict(each) for each in kept]


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(journal_store, "PROBE_SECONDS", 0.1)
        patched.setattr(journal_health, "STALL_SECONDS", 0.3)
        yield


@asynccontextmanager
async def an_agent(directory: Path) -> AsyncIterator[tuple[RunningAgent, FaultyConnection]]:
    async with a_running_agent(Node(directory)) as running:
        faulty = FaultyConnection(running.journal.connection)
        running.journal.connection = faulty  # type: ignore[assignment]  # a proxy of the connection
        try:
            yield running, faulty
        finally:
            faulty.restore()


@pytest.mark.parametrize("fault", [*FAULTS, HANG])
@pytest.mark.usefixtures("short_intervals")
async def test_no_acknowledged_order_is_lost_and_all_others_are_refused(
    fault: str, tmp_path: Path
) -> None:
    async with an_agent(tmp_path) as (running, faulty):
        await running.apply("before")
        await running.until_actual("before", Actual.RUNNING)
        acknowledged = {"before"}
        faulty.fail(fault, lambda sql: sql.startswith(ANYWHERE))
        for number in range(4):
            with suppress(AbortedError, TimeoutError):
                async with asyncio.timeout(0.5):
                    if (await running.apply(f"during-{number}")).applied:
                        acknowledged.add(f"during-{number}")
        assert acknowledged == {"before"}
        assert running.status("before") is not None

        faulty.restore()
        await running.until(lambda: not running.journal.problem(), "the journal works again")
        for name in ("before", "during-0", "after"):
            await running.apply(name)
            await running.until_actual(name, Actual.RUNNING)
            acknowledged.add(name)

    again = Journal(tmp_path / "state.db", cluster_id="default", node_id=NodeId("n1"))
    assert acknowledged <= again.entries.keys()
    again.close()


@pytest.mark.parametrize("fault", [*FAULTS, HANG])
@pytest.mark.usefixtures("short_intervals")
async def test_a_failing_journal_is_reported_without_a_busy_loop(
    fault: str, tmp_path: Path
) -> None:
    async with an_agent(tmp_path) as (running, faulty):
        await running.apply("web")
        await running.until_actual("web", Actual.RUNNING)
        faulty.fail(fault, lambda sql: sql.startswith(ANYWHERE))
        with suppress(AbortedError, TimeoutError):
            async with asyncio.timeout(0.1):
                await running.delete("web")
        await running.until(lambda: bool(running.journal.problem()), "the problem is known")
        before = faulty.struck
        await asyncio.sleep(FAULTY_SECONDS)

        assert faulty.struck - before < 60 * FAULTY_SECONDS
        health = running.agent._health()
        assert health["status"] == "degraded"
        assert health["journal"].startswith("journal: ")
        assert running.agent._node.unavailable() == [WorkloadType.CONTAINER]
        response = await running.api.HealthCheck(agent_pb2.HealthCheckRequest(), a_context())
        assert not response.healthy
        assert response.runtime_status["journal"].startswith("unhealthy: journal: ")
        assert bool(running.errors) == (fault in DEFECTS)

        faulty.restore()
        await running.until(lambda: not running.journal.problem(), "the journal works again")
        assert running.agent._health()["status"] == "ok"
        await running.delete("web")
        await running.until_actual("web", None)


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - DEFECTS))
def test_an_agent_starts_and_stops_on_a_full_disk(fault: str, tmp_path: Path) -> None:
    created, faulty = new_state(tmp_path)
    faulty.fail(fault, lambda sql: sql.startswith("BEGIN"))

    created.begin_run({WEB: 1})
    created.end_run()

    assert created.health.has_failed
    faulty.restore()
    created.begin_run({})
    created.close()


@pytest.mark.parametrize("where", ["COMMIT", "ROLLBACK", "BEGIN"])
async def test_a_transaction_whose_rollback_failed_does_not_block_the_next(
    where: str, tmp_path: Path
) -> None:
    async with writing(tmp_path) as (journal, faulty):
        faulty.fail("io", lambda sql: sql.startswith((where, "COMMIT")))
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await journal.commit(JournalChange(entry=ENTRY))
        faulty.restore()

        await journal.commit(JournalChange(entry=ENTRY))
        assert not journal.connection.in_transaction
