"""A scheduler that begins with thousands of stopped workloads and no node: much to show, nothing to do."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from persys.infra.clock import SystemClock
from persys.model.belief import Belief, Status
from persys.model.ids import Revision, WorkloadId
from persys.model.mode import ClusterMarker
from persys.model.spec import ContainerSpec
from persys.model.workload import Desired, Workload
from persys.store import keys
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore
from persys.wire import records

AT = datetime(2026, 1, 1, tzinfo=UTC)
PER_TRANSACTION = 500


def fill(path: Path, names: list[str]) -> None:
    """Before any scheduler has opened it."""
    asyncio.run(_fill(path, [_marker(), *map(_workload, names)]))


async def _fill(path: Path, units: list[Unit]) -> None:
    store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
    try:
        for first in range(0, len(units), PER_TRANSACTION):
            await store.commit(units[first : first + PER_TRANSACTION])
    finally:
        await store.close()


def _workload(name: str) -> Unit:
    workload_id, revision = WorkloadId(name), Revision("1")
    spec = ContainerSpec("registry.example/team/service:1.2.3")
    return _unit(
        {
            keys.workload_key(workload_id): Workload(
                workload_id, spec, revision, AT, AT, desired=Desired.STOPPED
            ),
            keys.belief_key(workload_id): Belief(workload_id, Status.STOPPED, AT),
        }
    )


def _marker() -> Unit:
    return _unit({keys.CLUSTER: ClusterMarker("crowded", AT)})


def _unit(structs: dict[str, Struct]) -> Unit:
    return Unit(puts={key: records.encode(struct) for key, struct in structs.items()})
