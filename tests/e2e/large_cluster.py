"""A scheduler that starts with thousands of stopped workloads and no node."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from e2e.cluster import Cluster
from persys.infra.clock import SystemClock
from persys.model.cluster import ClusterMarker
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired, Workload
from persys.store import keys
from persys.store.port import Unit
from persys.store.sqlite import SqliteStore
from persys.wire.stored import records

AT = datetime(2026, 1, 1, tzinfo=UTC)
PER_TRANSACTION = 500


@contextmanager
def a_large_cluster(directory: Path, count: int) -> Iterator[Cluster]:
    """One in a hundred has the name db, the others web."""
    directory.mkdir()
    names = [f"{'db' if number % 100 == 0 else 'web'}-{number:05}" for number in range(count)]
    asyncio.run(_fill(directory / "scheduler.db", [_marker(), *map(_workload, names)]))
    created = Cluster(directory)
    try:
        created.scheduler.start()
        yield created
    finally:
        created.close()


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
            keys.status_key(workload_id): WorkloadStatus(workload_id, Status.STOPPED, AT),
        }
    )


def _marker() -> Unit:
    return _unit({keys.CLUSTER: ClusterMarker("crowded", AT)})


def _unit(structs: dict[str, Struct]) -> Unit:
    return Unit(puts={key: records.encode(struct) for key, struct in structs.items()})
