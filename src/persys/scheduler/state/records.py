"""RECORDS: one row per record type. Every other list of record types is derived from this table.

A row defines the key, how a record is put into memory and dropped, whether a snapshot file contains it, what
a rebuild keeps of it, and what happens to an unreadable one. The rows are ordered by dependency: records are
put in this order and dropped in reverse.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from persys.core.recovery.merge import Merged
from persys.errors import RefusedError
from persys.model.action import History
from persys.model.cluster import ClusterMarker, Leader
from persys.model.event import Event
from persys.model.identity import Token
from persys.model.job import Job, Run
from persys.model.node import Lease, Node, RemovedNode
from persys.model.nodepool import Machine, NodePool
from persys.model.placement import Assignment, EpochCounter, Tombstone
from persys.model.secret import Secret
from persys.model.service import Service
from persys.model.sets import SetRevision, WorkloadSet
from persys.model.status import Drift, Retry, WorkloadStatus
from persys.model.workload import SuggestionDecision, Workload
from persys.scheduler.state import memory
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.memory import Memory
from persys.store import keys
from persys.wire.stored import records

StructT = TypeVar("StructT", bound=Struct)


class Unreadable(StrEnum):
    """What happens to the key of a damaged record. A record of a newer schema is always held."""

    HELD = "held"  # the scheduler does not overwrite it: an operator repairs it
    REPLACED = "replaced"  # the next write replaces it


@dataclass(frozen=True, slots=True)
class RecordType:
    """`read` raises RefusedError for bytes that are not the record of that key.

    `stand_in` puts an assumption into memory while the record of a key is unreadable. `in_memory` and
    `rebuilt` return keys and records: all of this type in memory, and those that a rebuild writes.
    """

    name: str
    prefix: str
    key_form: str  # for the documentation
    struct: type[Struct]
    content: str
    written_when: str
    in_snapshot: bool
    unreadable: Unreadable
    read: Callable[[str, bytes], Struct]
    put: Callable[[Memory, str, Struct], None]
    drop: Callable[[Memory, str], None]
    stand_in: Callable[[Memory, str], None]
    in_memory: Callable[[ClusterState], Iterable[tuple[str, Struct]]]
    rebuilt: Callable[[Merged, ClusterState], Iterable[tuple[str, Struct]]]


def _type(
    name: str,
    struct: type[StructT],
    key_form: str,
    *,
    content: str,
    written_when: str,
    in_snapshot: bool,
    unreadable: Unreadable,
    key_of: Callable[[StructT], str],
    put: Callable[[Memory, StructT], None],
    drop: Callable[[Memory, str], None],
    stand_in: Callable[[Memory, str], None],
    in_memory: Callable[[ClusterState], Iterable[StructT]],
    rebuilt: Callable[[Merged, Iterable[StructT]], Iterable[StructT]],
) -> RecordType:
    def read(key: str, value: bytes) -> Struct:
        record = records.decode(value, struct)
        if key_of(record) != key:
            raise RefusedError(
                f"invalid key '{key}' of a stored {struct.__name__}: expected '{key_of(record)}'"
            )
        return record

    def put_any(target: Memory, _key: str, record: Struct) -> None:
        assert isinstance(record, struct)
        put(target, record)

    def keyed(found: Iterable[StructT]) -> Iterable[tuple[str, Struct]]:
        return ((key_of(record), record) for record in found)

    return RecordType(
        name,
        prefix=key_form.partition("<")[0],
        key_form=key_form,
        struct=struct,
        content=content,
        written_when=written_when,
        in_snapshot=in_snapshot,
        unreadable=unreadable,
        read=read,
        put=put_any,
        drop=drop,
        stand_in=stand_in,
        in_memory=lambda cluster: keyed(in_memory(cluster)),
        rebuilt=lambda merged, cluster: keyed(rebuilt(merged, in_memory(cluster))),
    )


def _named(
    name: str,
    struct: type[StructT],
    key_form: str,
    *,
    content: str,
    written_when: str,
    key: Callable[[str], str],
    name_of: Callable[[StructT], str],
    held_in: Callable[[ClusterState], dict[str, StructT]],
) -> RecordType:
    """A type that users write and memory holds by name; a recovery keeps it as it is."""
    prefix = key_form.partition("<")[0]

    def put(target: Memory, record: StructT) -> None:
        held_in(target.cluster)[name_of(record)] = record

    def drop(target: Memory, dropped: str) -> None:
        held_in(target.cluster).pop(dropped.removeprefix(prefix), None)

    return _type(
        name,
        struct,
        key_form,
        content=content,
        written_when=written_when,
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda record: key(name_of(record)),
        put=put,
        drop=drop,
        stand_in=_nothing,
        in_memory=lambda cluster: held_in(cluster).values(),
        rebuilt=lambda _merged, held: held,
    )


def _nothing(_memory: Memory, _key: str) -> None:
    """Memory does not hold this type, or assumes nothing for an unreadable record."""


def _read_event(key: str, value: bytes) -> Event:
    event = records.decode(value, Event)
    if not keys.is_event(key) or keys.event_key(event.at, keys.event_sequence(key)) != key:
        raise RefusedError(f"invalid key '{key}' of a stored Event: expected its time and number")
    return event


def _put_event(target: Memory, key: str, event: Struct) -> None:
    assert isinstance(event, Event)
    memory.put_event(target, key, event)


def _events(cluster: ClusterState) -> Iterable[tuple[str, Event]]:
    return ((keys.event_key(event.at, number), event) for number, event in cluster.events)


RECORDS: tuple[RecordType, ...] = (
    _type(
        "node",
        Node,
        "/nodes/<id>",
        content="capabilities, endpoint, status",
        written_when="a node registers or its status changes",
        in_snapshot=True,
        unreadable=Unreadable.REPLACED,  # when the node registers again
        key_of=lambda node: keys.node_key(node.id),
        put=memory.put_node,
        drop=memory.drop_node,
        stand_in=_nothing,
        in_memory=lambda cluster: (member.node for member in cluster.nodes.values()),
        rebuilt=lambda merged, _held: merged.nodes.values(),
    ),
    _type(
        "lease",
        Lease,
        "/nodes/<id>/lease",
        content="when the lease of the node was granted; renewals are only in memory",
        written_when="a node registers",
        in_snapshot=False,  # short-lived
        unreadable=Unreadable.REPLACED,
        key_of=lambda lease: keys.node_lease_key(lease.node_id),
        put=lambda _memory, _lease: None,
        drop=_nothing,
        stand_in=_nothing,
        in_memory=lambda _cluster: (),
        rebuilt=lambda _merged, _held: (),
    ),
    _type(
        # Before workloads: each of them is compared only with the services that could select it.
        "service",
        Service,
        "/services/<id>",
        content="a service: its ports, and which workloads are its members",
        written_when="a user changes it",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda service: keys.service_key(service.service_id),
        put=lambda target, service: target.cluster.put_service(service),
        drop=lambda target, key: target.cluster.drop_service(key.removeprefix(keys.SERVICES)),
        stand_in=_nothing,
        in_memory=lambda cluster: cluster.services.values(),
        rebuilt=lambda _merged, held: held,
    ),
    _type(
        "workload",
        Workload,
        "/workloads/<id>",
        content="intent: spec, revision, desired state",
        written_when="a user changes it",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda workload: keys.workload_key(workload.id),
        put=memory.put_workload,
        drop=memory.drop_workload,
        stand_in=_nothing,
        in_memory=lambda cluster: (entry.workload for entry in cluster.workloads.values()),
        rebuilt=lambda merged, _held: merged.workloads.values(),
    ),
    _type(
        "assignment",
        Assignment,
        "/assignments/<id>",
        content="node, epoch, reserved resources",
        written_when="placement decides",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda bound: keys.assignment_key(bound.workload_id),
        put=memory.put_assignment,
        drop=memory.drop_assignment,
        stand_in=_nothing,
        in_memory=memory.assignments,
        rebuilt=lambda merged, _held: merged.assignments.values(),
    ),
    _type(
        "belief",
        WorkloadStatus,
        "/beliefs/<id>",
        content="status, reason, failure",
        written_when="the status changes",
        in_snapshot=True,
        unreadable=Unreadable.REPLACED,
        key_of=lambda workload_status: keys.status_key(workload_status.workload_id),
        put=memory.put_status,
        drop=memory.drop_status,
        stand_in=_nothing,
        in_memory=lambda cluster: (
            entry.workload_status
            for entry in cluster.workloads.values()
            if entry.workload_status is not None
        ),
        rebuilt=lambda merged, held: (
            workload_status
            for workload_status in held
            if workload_status.workload_id in merged.workloads
            and merged.still_holds(workload_status)
        ),
    ),
    _type(
        "retry",
        Retry,
        "/retries/<id>",
        content="attempts, next time",
        written_when="an attempt fails or the count is reset",
        in_snapshot=True,
        unreadable=Unreadable.REPLACED,
        key_of=lambda retry: keys.retry_key(retry.workload_id),
        put=memory.put_retry,
        drop=memory.drop_retry,
        stand_in=_nothing,
        in_memory=lambda cluster: (
            entry.retry for entry in cluster.workloads.values() if entry.retry is not None
        ),
        rebuilt=lambda merged, held: (
            retry for retry in held if retry.workload_id in merged.workloads
        ),
    ),
    _type(
        "reconciliation",
        History,
        "/reconciliations/<id>",
        content="ended tasks of its nodes, and those in progress at a timeout",
        written_when="a task ends, and once per timeout",
        in_snapshot=True,
        unreadable=Unreadable.REPLACED,
        key_of=lambda history: keys.history_key(history.workload_id),
        put=memory.put_history,
        drop=memory.drop_history,
        stand_in=_nothing,
        in_memory=lambda cluster: (
            entry.history for entry in cluster.workloads.values() if entry.history is not None
        ),
        rebuilt=lambda merged, held: (
            history for history in held if history.workload_id in merged.workloads
        ),
    ),
    _type(
        "tombstone",
        Tombstone,
        "/tombstones/<node>/<id>",
        content="a copy whose removal its node has not confirmed yet",
        written_when="a workload is deleted or moved while a copy may exist",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda one: keys.tombstone_key(one.assignment.node_id, one.assignment.workload_id),
        put=memory.put_tombstone,
        drop=memory.drop_tombstone,
        stand_in=_nothing,
        in_memory=lambda cluster: (
            one for stale in cluster.tombstones.values() for one in stale.values()
        ),
        rebuilt=lambda merged, _held: merged.tombstones,
    ),
    _type(
        "drift",
        Drift,
        "/drifts/<node>/<id>/<type>",
        content="a difference between record and node",
        written_when="it is confirmed or resolved",
        in_snapshot=True,
        unreadable=Unreadable.REPLACED,
        key_of=lambda drift: keys.drift_key(drift.node_id, drift.workload_id, drift.type),
        put=memory.put_drift,
        drop=memory.drop_drift,
        stand_in=_nothing,
        in_memory=lambda cluster: cluster.drifts,
        rebuilt=memory.rebuilt_drifts,
    ),
    _type(
        "epoch_counter",
        EpochCounter,
        "/epochs/<scope>",
        content="the highest epoch that may be in use, and the key of proofs",
        written_when="a leader reserves the next 10,000 epochs",
        in_snapshot=True,
        unreadable=Unreadable.REPLACED,
        key_of=lambda _counter: keys.EPOCHS,
        put=memory.put_epoch_counter,
        drop=memory.drop_epoch_counter,
        stand_in=memory.assume_epochs,
        in_memory=memory.epoch_counter,
        rebuilt=memory.rebuilt_epoch_counter,
    ),
    _type(
        "removal",
        RemovedNode,
        "/removed/<node>",
        content="when a node was removed: its earlier certificates are refused",
        written_when="a node is removed; deleted after 91 days",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda removal: keys.removed_key(removal.node_id),
        put=memory.put_removal,
        drop=memory.drop_removal,
        stand_in=memory.assume_removed,
        in_memory=lambda cluster: cluster.removed.values(),
        rebuilt=lambda _merged, held: held,
    ),
    _named(
        "token",
        Token,
        "/tokens/<id>",
        content="an access token of a user, without its secret",
        written_when="a token is created or revoked",
        key=keys.token_key,
        name_of=lambda token: token.id,
        held_in=lambda cluster: cluster.tokens,
    ),
    _named(
        "secret",
        Secret,
        "/secrets/<name>",
        content="the versions of a secret, encrypted",
        written_when="a secret is put or deleted",
        key=keys.secret_key,
        name_of=lambda secret: secret.name,
        held_in=lambda cluster: cluster.secrets,
    ),
    _named(
        "suggestion",
        SuggestionDecision,
        "/suggestions/<id>",
        content="the decision on a suggestion of an automation policy",
        written_when="together with the change that it makes",
        key=keys.suggestion_key,
        name_of=lambda decision: decision.suggestion.id,
        held_in=lambda cluster: cluster.suggestion_decisions,
    ),
    _named(
        "node_pool",
        NodePool,
        "/nodepools/<id>",
        content="a node pool: provider, sizes, limits, and when it may create machines again",
        written_when="a user changes it, a machine is created, or a create fails",
        key=keys.node_pool_key,
        name_of=lambda pool: pool.pool_id,
        held_in=lambda cluster: cluster.node_pools,
    ),
    _named(
        "machine",
        Machine,
        "/machines/<name>",
        content="a machine of a node pool that may exist",
        written_when="before it is created, and when its state changes",
        key=keys.machine_key,
        name_of=lambda machine: machine.name,
        held_in=lambda cluster: cluster.machines,
    ),
    _named(
        "set",
        WorkloadSet,
        "/sets/<id>",
        content="a set: replicas, policies, and the state of its rollout",
        written_when="a user changes it, a batch of its members ends, or it is scaled",
        key=keys.set_key,
        name_of=lambda one: one.set_id,
        held_in=lambda cluster: cluster.sets,
    ),
    _named(
        "set_revision",
        SetRevision,
        "/setrevisions/<set>/<number>",
        content="a template of a set, one of the last ten",
        written_when="the template of a set changes",
        key=lambda name: f"{keys.SET_REVISIONS}{name}",
        name_of=lambda one: f"{one.set_id}/{one.number}",
        held_in=lambda cluster: cluster.set_revisions,
    ),
    _type(
        "job",
        Job,
        "/jobs/<id>",
        content="a job: template, limits, schedule and its last occurrence",
        written_when="a user changes it, or an occurrence is started or skipped",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda job: keys.job_key(job.job_id),
        put=lambda target, job: target.cluster.put_job(job),
        drop=lambda target, key: target.cluster.drop_job(key.removeprefix(keys.JOBS)),
        stand_in=_nothing,
        in_memory=lambda cluster: cluster.jobs.values(),
        rebuilt=lambda _merged, held: held,
    ),
    _type(
        "run",
        Run,
        "/runs/<job>/<id>",
        content="a run of a job: its state and its attempts",
        written_when="a run starts or ends, or attempts of it start or end",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        key_of=lambda run: keys.run_key(run.job_id, run.run_id),
        put=lambda target, run: target.cluster.runs.put(run),
        drop=lambda target, key: target.cluster.runs.drop(key.removeprefix(keys.RUNS)),
        stand_in=_nothing,
        in_memory=lambda cluster: cluster.runs.all(),
        rebuilt=lambda _merged, held: held,
    ),
    RecordType(
        "event",
        prefix=keys.EVENTS,
        key_form="/events/<time>-<number>",
        struct=Event,
        content="what happened",
        written_when="together with each change above",
        in_snapshot=True,
        unreadable=Unreadable.HELD,
        read=_read_event,
        put=_put_event,
        drop=memory.drop_event,
        stand_in=_nothing,
        in_memory=_events,
        rebuilt=lambda _merged, cluster: _events(cluster),
    ),
)


@dataclass(frozen=True, slots=True)
class SingleKey:
    """A single key that is not a record: it describes the store, not the cluster."""

    key: str
    struct: type[Struct]
    content: str
    written_when: str


SINGLE_KEYS = (
    SingleKey(
        keys.CLUSTER,
        ClusterMarker,
        "the identity of the cluster",
        "a cluster is created or recovered",
    ),
    SingleKey(
        keys.LEADER, Leader, "the leader; its version is the fence", "a scheduler becomes leader"
    ),
)

_BY_PREFIX: Mapping[str, RecordType] = {
    one.prefix: one for one in RECORDS if one.struct is not Lease
}
_LEASES = next(one for one in RECORDS if one.struct is Lease)


def type_of(key: str) -> RecordType | None:
    """The type of the record with this key. None: it is not the key of a record."""
    if keys.is_node_lease(key):
        return _LEASES
    end = key.find("/", 1) + 1
    return _BY_PREFIX.get(key[:end]) if end else None
