"""Records as the scheduler stores them, written directly: the baseline for commits, and a full store."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from msgspec import Struct

from persys.core.event_retention import EventLimits
from persys.infra.clock import SystemClock
from persys.model import feature
from persys.model.cluster import ClusterMarker
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Assignment, Resources
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Workload
from persys.store import keys
from persys.store.port import Store, Unit
from persys.store.sqlite import SqliteStore
from persys.wire.stored import records

AT = datetime(2025, 6, 1, 12, tzinfo=UTC)
NEEDS = Resources(100, 64)
REVISION = "3f8a1c0d5e7b9a24"
EVENTS_EACH = 2
PER_TRANSACTION = 500
FEATURES = (feature.PUSHES_STATUS,)


def node_name(number: int) -> str:
    return f"node-{number:05}"


def node_labels(number: int) -> dict[str, str]:
    return {"zone": f"z{number % 5}"}


def workload_names(node: int, *, nodes: int, each: int) -> list[str]:
    """The workloads that are stored as assigned to this node."""
    return [f"stored-{node + nodes * count}" for count in range(each)]


def marker_unit() -> Unit:
    """The cluster marker: a store without it counts as damaged."""
    return _unit({keys.CLUSTER: ClusterMarker("bench", AT)})


def node_units(count: int) -> list[Unit]:
    return [_unit({keys.node_key(node.id): node}) for node in map(_node, range(count))]


def units(count: int, *, nodes: int) -> list[Unit]:
    """One placement each: intent, assignment, status, and events of the last ones, as many as are kept."""
    first = count - EventLimits().count_max // EVENTS_EACH
    return [_placement(number, nodes, with_events=number >= first) for number in range(count)]


async def write(path: Path, to_write: Sequence[Unit]) -> None:
    """Write the units into a store."""
    store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
    await commit_bare(store, to_write, PER_TRANSACTION)
    await store.close()


async def commit_bare(store: Store, to_write: Sequence[Unit], per_transaction: int) -> float:
    """Units per second."""
    started_at = perf_counter()
    for batch in _slices(to_write, per_transaction):
        await store.commit(batch)
    return len(to_write) / (perf_counter() - started_at)


def _placement(number: int, nodes: int, *, with_events: bool) -> Unit:
    workload_id = WorkloadId(f"stored-{number}")
    node_id = _node(number % nodes).id
    spec = ContainerSpec("registry.example/team/service:1.2.3")
    workload = Workload(workload_id, spec, Revision(REVISION), AT, AT, resources=NEEDS)
    assignment = Assignment(
        workload_id, node_id, 1, AT, NEEDS, why="lowest utilisation of 5000 nodes: 0% reserved"
    )
    workload_status = WorkloadStatus(
        workload_id, Status.RUNNING, AT, revision=workload.revision, epoch=1
    )
    reported = {
        keys.event_key(AT, 2 * number + offset): Event(AT, kind, "", workload_id, node_id)
        for offset, kind in enumerate((EventKind.WORKLOAD_CREATED, EventKind.WORKLOAD_PLACED))
        if with_events
    }
    return _unit(
        {
            keys.workload_key(workload_id): workload,
            keys.assignment_key(workload_id): assignment,
            keys.status_key(workload_id): workload_status,
            **reported,
        }
    )


def _node(number: int) -> Node:
    has = Capabilities(
        64_000,
        256_000,
        types=frozenset({WorkloadType.CONTAINER}),
        features=frozenset(FEATURES),
    )
    return Node(NodeId(node_name(number)), has, "127.0.0.1:1", AT, labels=node_labels(number))


def _unit(structs: dict[str, Struct]) -> Unit:
    return Unit(puts={key: records.encode(struct) for key, struct in structs.items()})


def _slices(to_write: Sequence[Unit], size: int) -> Iterator[Sequence[Unit]]:
    for first in range(0, len(to_write), size):
        yield to_write[first : first + size]
