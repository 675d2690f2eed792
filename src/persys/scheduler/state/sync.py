"""Synchronises memory with the store: a full snapshot, or one revision of the leader at a time.

Both have the same result. A snapshot may have 100,000 records: they are decoded in a thread and compared in
slices, and only the differences are applied without a pause. Within one revision the order of writes is
unknown, so its records are applied in the order of RECORDS. An unreadable record is quarantined, and
everything else is applied.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from msgspec import Struct
from msgspec.structs import force_setattr

from persys.core.recovery.merge import Merged
from persys.errors import CompactedError, QuarantinedError, RefusedError
from persys.infra.aio.offload import TimeSlice
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import Clock
from persys.model.event import Event
from persys.model.ids import Revision
from persys.model.placement import Assignment
from persys.model.spec import Spec
from persys.model.status import WorkloadStatus
from persys.model.workload import Workload
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.memory import Memory
from persys.scheduler.state.quarantine import Quarantined
from persys.scheduler.state.records import RECORDS, RecordType, Unreadable, type_of
from persys.store.port import Snapshot, WatchEvent
from persys.wire.stored import records
from persys.wire.stored.records import NewerSchemaError

STEPS_PER_LOOK = 32  # a step takes microseconds
_POSITION = {kind.name: position for position, kind in enumerate(RECORDS)}
# The fields of numerous records that are hashable and often equal.
_SHARED_FIELDS: dict[type[Struct], tuple[str, ...]] = {
    Workload: ("id", "revision", "resources", "rules"),
    Assignment: ("workload_id", "node_id", "reserved", "host_ports", "why", "rules"),
    WorkloadStatus: ("workload_id", "revision", "message"),
    Event: ("workload_id", "node_id", "revision", "message", "identity", "source"),
}


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The records of a snapshot, by type name and key, and the unreadable ones."""

    found: dict[str, dict[str, Struct]]
    unreadable: list[tuple[RecordType, Quarantined]]


def load(cluster: ClusterState, snapshot: Snapshot, *, lease_until: float, now: datetime) -> None:
    """Replace the records in memory by the snapshot; observations and dispatches are kept.

    New nodes get a lease until `lease_until`: none is judged before it could send a heartbeat.
    """
    for _ in _taken(Memory(cluster, lease_until, now), _decoded(snapshot)):
        pass


async def load_in_slices(
    cluster: ClusterState, snapshot: Snapshot, *, lease_until: float, clock: Clock
) -> None:
    """Like `load`, while other tasks run. Until it returns, nothing may be committed."""
    decoded = await asyncio.to_thread(_decoded, snapshot)
    slices = TimeSlice(clock)
    for count, _ in enumerate(_taken(Memory(cluster, lease_until, clock.now()), decoded)):
        if count % STEPS_PER_LOOK == 0:
            await slices.between()


def _decoded(snapshot: Snapshot) -> _Decoded:
    found: dict[str, dict[str, Struct]] = {kind.name: {} for kind in RECORDS}
    unreadable: list[tuple[RecordType, Quarantined]] = []
    parts = _SharedParts()
    for stored in snapshot.records:
        key = stored.key
        kind = type_of(key)
        if kind is None:
            continue
        read = _read(kind, key, stored.value)
        if isinstance(read, Quarantined):
            unreadable.append((kind, read))
        else:
            parts.share(read)
            found[kind.name][key] = read
    return _Decoded(found, unreadable)


def _taken(memory: Memory, decoded: _Decoded) -> Iterator[None]:
    """Applies the records to memory. It yields where it may pause: not while the differences are partly
    applied, unless memory was empty and serves no requests yet."""
    cluster, found = memory.cluster, decoded.found
    was_empty = not (cluster.workloads or cluster.nodes or cluster.detached or cluster.tombstones)
    gone: list[tuple[RecordType, str]] = []
    for kind in reversed(RECORDS):
        stored = found[kind.name]
        for key, record in list(kind.in_memory(cluster)):
            yield
            if key not in stored:
                gone.append((kind, key))
            elif stored[key] == record:
                del stored[key]  # unchanged
    for kind, key in gone:
        kind.drop(memory, key)
    for kind in RECORDS:
        for key, record in found[kind.name].items():
            if was_empty:
                yield
            kind.put(memory, key, record)
    cluster.quarantine.release_all_but(one.key for _, one in decoded.unreadable)
    for kind, one in decoded.unreadable:
        cluster.quarantine.put(one)
        kind.stand_in(memory, one.key)
    cluster.events.loaded()
    if not was_empty:  # else every reservation was made with its record
        yield from _reserved(cluster)
    cluster.raise_epochs()


def follow(
    cluster: ClusterState, changes: Sequence[WatchEvent], *, lease_until: float, now: datetime
) -> None:
    """Apply the changes of one revision.

    Raises CompactedError when a quarantined record was repaired: records that depend on it were skipped
    while it was unreadable, so everything has to be read again.
    """
    repaired = next((one.key for one in changes if one.key in cluster.quarantine), "")
    if repaired:
        raise CompactedError(f"record {repaired} was unreadable and has been written again")
    memory = Memory(cluster, lease_until, now)
    written: list[tuple[RecordType, str, Struct]] = []
    gone: list[tuple[RecordType, str]] = []
    unreadable: list[tuple[RecordType, str]] = []
    for change in changes:
        kind = type_of(change.key)
        if kind is None:
            continue
        read = _read(kind, change.key, change.value) if change.value is not None else None
        if isinstance(read, Quarantined):
            cluster.quarantine.put(read)
            unreadable.append((kind, change.key))
            gone.append((kind, change.key))
            continue
        if read is not None:
            written.append((kind, change.key, read))
        else:
            gone.append((kind, change.key))
    for kind, key, record in sorted(written, key=lambda one: _POSITION[one[0].name]):
        kind.put(memory, key, record)
    for kind, key in sorted(gone, key=lambda one: -_POSITION[one[0].name]):
        kind.drop(memory, key)
    for kind, key in unreadable:
        kind.stand_in(memory, key)


def in_snapshot(key: str) -> bool:
    """False for the leader key, node leases and DNS names: they are short-lived."""
    kind = type_of(key)
    return kind is not None and kind.in_snapshot


def encoded(cluster: ClusterState) -> dict[str, bytes]:
    """The records of a snapshot file, from memory."""
    return {
        key: records.encode(record)
        for kind in RECORDS
        if kind.in_snapshot
        for key, record in kind.in_memory(cluster)
    }


def rebuilt(merged: Merged, base: ClusterState) -> dict[str, bytes]:
    """The content of the store after a recovery: the merged records, and the other records of `base`."""
    found: dict[str, Struct] = {}
    for kind in RECORDS:
        found.update(kind.rebuilt(merged, base))
    return {key: records.encode(record) for key, record in found.items()}


def _read(kind: RecordType, key: str, value: bytes) -> Struct | Quarantined:
    try:
        return kind.read(key, value)
    except NewerSchemaError as err:
        return Quarantined(key, kind.name, str(err), replaceable=False)
    except RefusedError as err:
        replaceable = kind.unreadable is Unreadable.REPLACED
        return Quarantined(key, kind.name, str(err), replaceable=replaceable)


def _reserved(cluster: ClusterState) -> Iterator[None]:
    """Updates all reservations from the records, also reservations whose record is gone."""
    detached = {one.node_id for one in cluster.detached.values()}
    for node_id in {*cluster.nodes, *cluster.on_node, *cluster.tombstones, *detached}:
        reserved = {*cluster.node_index.holders(node_id), *cluster.tombstones.get(node_id, ())}
        for workload_id in reserved | cluster.bound_to(node_id):
            yield
            cluster.update_reservations(workload_id, (node_id,))


log = structlog.get_logger()

QUARANTINED_NAMED_MAX = 50


class StateLoader:
    def __init__(
        self,
        cluster: ClusterState,
        clock: Clock,
        supervisor: Supervisor,
        *,
        lease: timedelta,
        loaded: Callable[[None], None],
    ) -> None:
        """Nodes get a full `lease` after a load. `loaded` is called after each load."""
        self._cluster = cluster
        self._clock = clock
        self._supervisor = supervisor
        self._lease = lease
        self._loaded = loaded
        self.has_loaded = False  # whether memory was loaded from the store once

    async def load(self, snapshot: Snapshot) -> None:
        """Replace the records in memory by the snapshot."""
        lease_until = self._clock.monotonic() + self._lease.total_seconds()
        await load_in_slices(self._cluster, snapshot, lease_until=lease_until, clock=self._clock)
        self._report_quarantined()
        self.has_loaded = True
        self._loaded(None)

    def follow(self, changes: Sequence[WatchEvent]) -> None:
        """Apply the changes of one revision that the leader has written."""
        clock = self._clock
        follow(self._cluster, changes, lease_until=clock.monotonic(), now=clock.now())
        self._report_quarantined()

    def _report_quarantined(self) -> None:
        """Report each unreadable record by its key, unless there are very many, as after a downgrade."""
        quarantine = self._cluster.quarantine
        for key in quarantine.take_released():
            self._supervisor.resolved("record", key)
        unreported = quarantine.take_unreported()
        for one in unreported[:QUARANTINED_NAMED_MAX]:
            self._supervisor.record("record", one.key, QuarantinedError(one.reason))
        if len(unreported) > QUARANTINED_NAMED_MAX:
            log.error("records.quarantined", count=len(quarantine), last=unreported[-1].key)


class _SharedParts:
    """Equal parts of the records of one load, so that memory has one copy of each.

    Decoding makes new objects for every record, but most are equal to others: the id of a workload is in
    three records and several events, and all members of a set have the same spec, resources and rules.
    Records are frozen, so nothing changes a shared part. It is dropped after the load.
    """

    def __init__(self) -> None:
        self._parts: dict[object, object] = {}
        self._specs: dict[Revision, Spec] = {}

    def share(self, record: Struct) -> None:
        """Replace parts of a new record by equal parts of earlier ones."""
        parts = self._parts
        for name in _SHARED_FIELDS.get(type(record), ()):
            part = getattr(record, name)
            known = parts.setdefault(part, part)
            # Equal values of different types, such as 1 and True, are not the same part.
            if known is not part and type(known) is type(part):
                force_setattr(record, name, known)
        if isinstance(record, Workload):
            self._share_spec(record)

    def _share_spec(self, workload: Workload) -> None:
        """Specs are not hashable; the revision is a hash of the spec and more."""
        known = self._specs.setdefault(workload.revision, workload.spec)
        if known is not workload.spec and known == workload.spec:
            force_setattr(workload, "spec", known)
