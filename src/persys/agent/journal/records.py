"""The records of the journal, and a change of them with its SQL statements."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct, field

from persys.core.agent.progress import Progress
from persys.core.networks.addresses import MemberAddress
from persys.model.action import Action
from persys.model.ids import ActionId, WorkloadId
from persys.model.network import NetworkConfiguration, NodeNetwork
from persys.model.node import Volume
from persys.model.status import Actual, Failure
from persys.model.workload import Order
from persys.wire.stored.records import encode

_UPSERT = "ON CONFLICT (id) DO UPDATE SET record = excluded.record"


class ReportedStatus(Struct, frozen=True):
    """The status of a workload as last observed."""

    actual: Actual
    changed_at: datetime
    code: str = ""
    message: str = ""
    failure: Failure | None = None
    metadata: dict[str, str] = {}


class Entry(Struct, frozen=True):
    """The journal record of one workload."""

    order: Order
    generation: int  # incremented with each accepted order, to recognise work for an older one
    action_id: ActionId  # the last action, open while it is pending or running
    created_at: datetime
    updated_at: datetime
    status: ReportedStatus = field(name="standing")  # the name in stored records
    progress: Progress = Progress()
    # All managed volumes of the workload so far: True if the volume must be retained.
    volumes: dict[str, bool] = {}
    intent: bytes = b""  # the scheduler's own record, stored unchanged
    cluster_uid: str = ""  # the cluster of the order's epoch; "": unknown
    sealed: bytes = b""  # on disk only: the encrypted secret values of the order


class Image(Struct, frozen=True):
    """An image that this agent pulled. If its name refers to another image now, the id differs."""

    name: str
    id: str
    fetched_at: datetime
    used_at: datetime  # the last time it was in use


class DeletionMarker(Struct, frozen=True):
    """Deletion marker of a workload: orders up to this epoch are refused.

    `acknowledged`: the scheduler has acknowledged the deletion.
    """

    workload_id: WorkloadId
    epoch: int
    acknowledged: bool = field(default=False, name="told")  # the name in stored records
    was_here: bool = True  # False: the delete arrived before any apply
    cluster_uid: str = ""  # the cluster of the epoch; "": unknown


class StoredNetworks(Struct, frozen=True):
    """The networks of the node, as configured by the scheduler."""

    configuration: NetworkConfiguration = NetworkConfiguration("")
    leaving: tuple[NodeNetwork, ...] = ()  # no longer configured, but they still have members here


@dataclass(frozen=True, slots=True)
class JournalChange:
    """Records that are written atomically."""

    entry: Entry | None = None
    actions: Sequence[Action] = ()
    deleted: WorkloadId | None = None
    deletion_markers: Sequence[DeletionMarker] = ()
    undeleted: WorkloadId | None = None
    cluster_uid: str = ""  # the cluster that this node has joined
    instance_id: str = ""  # of the last registration
    images: Sequence[Image] = ()
    images_removed: Sequence[str] = ()
    volumes: Sequence[Volume] = ()
    volumes_removed: Sequence[tuple[WorkloadId, str]] = ()
    actions_removed: Sequence[ActionId] = ()
    contact_at: datetime | None = (
        None  # send time of the last heartbeat that the leader acknowledged
    )
    resuming: WorkloadId | None = None  # "": no order is being resumed alone
    networks: StoredNetworks | None = None
    addresses: Sequence[MemberAddress] = ()
    addresses_removed: Sequence[MemberAddress] = ()
    survived: WorkloadId | None = None  # its work ended without a crash of the agent


class Statement(NamedTuple):
    sql: str
    rows: Sequence[Sequence[str | bytes]]


# Writes to the disk without a change.
PROBE = Statement("UPDATE run SET resuming = resuming", [()])


def statements_of(change: JournalChange, seal: Callable[[Entry], Entry]) -> list[Statement]:
    """The statements of a change. `seal` encrypts secret values. Raises RefusedError."""
    made: list[Statement] = []

    def add(sql: str, rows: Iterable[Sequence[str | bytes]]) -> None:
        if found := list(rows):
            made.append(Statement(sql, found))

    if (entry := change.entry) is not None:
        add(
            f"INSERT INTO entries VALUES (?, ?) {_UPSERT}",  # noqa: S608
            [(entry.order.workload_id, encode(seal(entry)))],
        )
    if change.deleted is not None:
        add("DELETE FROM entries WHERE id = ?", [(change.deleted,)])
    if change.undeleted is not None:
        add("DELETE FROM burials WHERE id = ?", [(change.undeleted,)])
    if change.instance_id:
        add("DELETE FROM instance", [()])
        add("INSERT INTO instance VALUES (?)", [(change.instance_id,)])
    if change.cluster_uid:
        add("DELETE FROM allegiance", [()])
        add("INSERT INTO allegiance VALUES (?)", [(change.cluster_uid,)])
    if change.resuming is not None:
        add("UPDATE run SET resuming = ?", [(change.resuming,)])
    if change.survived is not None:
        add("DELETE FROM crashes WHERE id = ?", [(change.survived,)])
    if change.contact_at is not None:
        add("DELETE FROM contact", [()])
        add("INSERT INTO contact VALUES (?)", [(change.contact_at.isoformat(),)])
    add(
        "INSERT INTO images VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record = excluded.record",
        ((image.name, encode(image)) for image in change.images),
    )
    add("DELETE FROM images WHERE name = ?", ((name,) for name in change.images_removed))
    add(
        "INSERT INTO volumes VALUES (?, ?, ?) "
        "ON CONFLICT (id, name) DO UPDATE SET record = excluded.record",
        ((each.workload_id, each.name, encode(each)) for each in change.volumes),
    )
    add("DELETE FROM volumes WHERE id = ? AND name = ?", change.volumes_removed)
    _add_networks(change, add)
    add("DELETE FROM actions WHERE id = ?", ((each,) for each in change.actions_removed))
    add(
        f"INSERT INTO actions (id, record) VALUES (?, ?) {_UPSERT}",  # noqa: S608
        ((action.id, encode(action)) for action in change.actions),
    )
    add(
        f"INSERT INTO burials (id, record) VALUES (?, ?) {_UPSERT}",  # noqa: S608
        ((marker.workload_id, encode(marker)) for marker in change.deletion_markers),
    )
    return made


def _add_networks(
    change: JournalChange, add: Callable[[str, Iterable[Sequence[str | bytes]]], None]
) -> None:
    if change.networks is not None:
        add("DELETE FROM networks", [()])
        add("INSERT INTO networks VALUES ('', ?)", [(encode(change.networks),)])
    add(
        "DELETE FROM addresses WHERE network = ? AND address = ?",
        ((each.network_id, each.address) for each in change.addresses_removed),
    )
    add(
        "INSERT INTO addresses VALUES (?, ?, ?) "
        "ON CONFLICT (network, address) DO UPDATE SET record = excluded.record",
        ((each.network_id, each.address, encode(each)) for each in change.addresses),
    )
