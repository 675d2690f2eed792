"""Lets an operator inspect and delete unreadable stored records while the scheduler runs.

Only quarantined records, and assignments whose workload has no record, are shown and deleted here: everything
else has its own commands. A delete is a commit like any other, guarded by the version of the record;
afterwards everything is read again, because other records may depend on this one.

Before an assignment or a tombstone is deleted, the nodes that may have the copy are polled, so that the copy
is known to the next placement. A record that fences something (used epochs, removed nodes) is not deleted but
replaced by the assumption that the scheduler made.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from persys.core.epochs import restart_at
from persys.core.placement.requirements import is_exclusive
from persys.errors import ConflictError, NotFoundError, RefusedError
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node, RemovedNode
from persys.model.status import Observation
from persys.scheduler.commit.committer import Committer, retry_on_conflict
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.dispatch.fan_out import call_all
from persys.scheduler.ports import Agents
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.memory import Memory
from persys.scheduler.state.quarantine import Quarantined
from persys.scheduler.state.records import type_of
from persys.store import keys
from persys.store.port import Record, Store

NODES_NAMED_MAX = 5
_WITHOUT_WORKLOAD = "its workload has no record"


@dataclass(frozen=True, slots=True)
class Deleted:
    """`next_step` tells the operator what to do next."""

    next_step: str


class RecordRepair:
    def __init__(
        self,
        cluster: ClusterState,
        store: Store,
        committer: Committer,
        agents: Agents,
        clock: Clock,
        *,
        listed: Callable[[NodeId, Sequence[Observation]], None],
        mark_stale: Callable[[], None],
    ) -> None:
        """`listed` is called with the full list of each polled node."""
        self._cluster = cluster
        self._store = store
        self._committer = committer
        self._agents = agents
        self._clock = clock
        self._listed = listed
        self._mark_stale = mark_stale

    def all(self) -> list[Quarantined]:
        """Sorted by key."""
        found = {one.key: one for one in self._cluster.quarantine}
        for workload_id in self._cluster.detached:
            if keys.workload_key(workload_id) not in self._cluster.quarantine:
                key = keys.assignment_key(workload_id)
                found[key] = Quarantined(key, "assignment", _WITHOUT_WORKLOAD, replaceable=False)
        return [found[key] for key in sorted(found)]

    async def get(self, key: str) -> tuple[Quarantined, Record]:
        """The record with its stored bytes. Raises NotFoundError."""
        record = self._record(key)
        stored = await self._store.get(key)
        if stored is None:
            raise NotFoundError("record", key)
        return record, stored

    async def delete(self, key: str, *, version: int) -> Deleted:
        """Delete the record; only this version, if it is not 0. Raises RefusedError with what to do first."""

        async def attempt() -> Deleted:
            record = self._record(key)
            stored = await self._store.get(key)
            if version and (stored is None or stored.version != version):
                raise RefusedError(
                    f"record {key} was changed: it no longer has version {version}; get it again"
                )
            await self._check(record)
            if self._record(key) != record:  # it changed during the poll
                raise ConflictError(f"record {key} has changed")
            await self._committer.commit(self._change(record), repairs=True)
            return Deleted(_next_step(record))

        deleted = await retry_on_conflict(attempt)
        self._mark_stale()  # records that depend on this one were skipped at the last load
        return deleted

    def _record(self, key: str) -> Quarantined:
        if (held := self._cluster.quarantine.get(key)) is not None:
            return held
        if key.startswith(keys.ASSIGNMENTS):
            found = next((one for one in self.all() if one.key == key), None)
            if found is not None:
                return found
        raise NotFoundError("unreadable record", key)

    def _change(self, record: Quarantined) -> Transaction:
        kind, now = type_of(record.key), self._clock.now()
        assert kind is not None, "only keys of records are quarantined"
        memory = Memory(self._cluster, self._clock.monotonic(), now)
        event = Event(now, EventKind.RECORD_DELETED, f"{record.key}: {record.reason}")
        if (assumed := self._assumed(record)) is not None:
            return Transaction(
                done=lambda: kind.put(memory, record.key, assumed),
                puts={record.key: assumed},
                events=[event],
            )
        return Transaction(
            done=lambda: kind.drop(memory, record.key),
            drops=[record.key, *self._useless_without(record)],
            events=[event],
        )

    def _assumed(self, record: Quarantined) -> Struct | None:
        """The record to store in its place, if any."""
        epochs = self._cluster.epochs
        if record.key == keys.EPOCHS:
            return epochs.restarted(restart_at([epochs.reserved_until], now=self._clock.now()))
        if record.kind == "removal":
            return RemovedNode(NodeId(_name(record.key)), self._clock.now())
        return None

    def _useless_without(self, record: Quarantined) -> list[str]:
        """The records of a workload that have no meaning without the workload record."""
        if record.kind != "workload":
            return []
        workload_id = WorkloadId(_name(record.key))
        about = (keys.status_key, keys.retry_key, keys.history_key)
        return [key(workload_id) for key in about]

    async def _check(self, record: Quarantined) -> None:
        match record.kind:
            case "node":
                self._check_nothing_is_bound(NodeId(_name(record.key)), record)
            case "assignment":
                await self._look_for_copies(WorkloadId(_name(record.key)))
            case "tombstone":
                name = record.key.removeprefix(keys.TOMBSTONES).partition("/")[0]
                member = self._cluster.nodes.get(NodeId(name))
                await self._poll(WorkloadId(_name(record.key)), [member.node] if member else [])
            case _:
                return

    def _check_nothing_is_bound(self, node_id: NodeId, record: Quarantined) -> None:
        bound = [*self._cluster.bound_to(node_id), *self._cluster.tombstones.get(node_id, ())]
        if not bound:
            return
        instead = (
            "start its agent, which writes the record again"
            if record.replaceable
            else "upgrade the scheduler"
        )
        raise RefusedError(
            f"node {node_id} has {len(bound)} recorded workloads, such as {min(bound)}; {instead}"
        )

    async def _look_for_copies(self, workload_id: WorkloadId) -> None:
        """A workload may be started again, unless it has data or runs once."""
        entry = self._cluster.workloads.get(workload_id)
        if entry is not None and not is_exclusive(entry.workload):
            return
        await self._poll(workload_id, [one.node for one in self._cluster.nodes.values()])

    async def _poll(self, workload_id: WorkloadId, nodes: Iterable[Node]) -> None:
        """Poll these nodes for their full lists. Raises RefusedError if one does not reply."""
        polled = [node for node in nodes if not node.confirmed_dead]

        async def list_workloads(node: Node) -> list[Observation]:
            return await self._agents.list_workloads(node.id, node.endpoint)

        found = await call_all(polled, list_workloads)
        if found.problems:
            silent = sorted(found.problems)
            named = ", ".join(silent[:NODES_NAMED_MAX])
            more = f" and {len(silent) - NODES_NAMED_MAX} more" * (len(silent) > NODES_NAMED_MAX)
            raise RefusedError(
                f"{named}{more} may have a copy of {workload_id} and does not reply; wait for it, or "
                f"run `persysctl node confirm-dead {silent[0]}` if that machine is off"
            )
        for node_id, copies in found.by_node.items():
            self._listed(node_id, copies)


def _next_step(record: Quarantined) -> str:
    name = _name(record.key)
    match record.kind:
        case "workload":
            return f"apply {name} again; a running copy is adopted"
        case "assignment" | "tombstone":
            return (
                f"`persysctl explain {name}` and `persysctl orphans list` show the copies of {name}"
            )
        case "secret":
            return f"put {name} again with `persysctl secret put {name}`"
        case "token":
            return "create a new token for its holder"
        case "node":
            return f"the agent of {name} registers again automatically"
        case "removal":
            return f"certificates of {name} issued before now are refused"
        case _:
            return ""


def _name(key: str) -> str:
    return key.rpartition("/")[2]
