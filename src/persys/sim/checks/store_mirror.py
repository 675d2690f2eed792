"""The decoded records of the store with their history, for the checks; and the check for stale reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from persys.model.ids import NodeId, WorkloadId
from persys.model.job import Job, Run
from persys.model.node import Node
from persys.model.placement import Assignment, Tombstone
from persys.model.sets import SetRevision, Template, WorkloadSet
from persys.model.status import Drift, DriftType, Retry, WorkloadStatus
from persys.model.workload import Desired, Membership, Workload
from persys.scheduler.state.records import type_of
from persys.sim.checks.acknowledged import State, Stored, state_of
from persys.store import keys
from persys.store.port import Unit

# Until a commit is in memory: after the store's response, or after the watch event.
SLACK_SECONDS = 1.0


@dataclass(slots=True)
class StoreMirror:
    workloads: dict[str, Workload] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    workload_statuses: dict[str, WorkloadStatus] = field(default_factory=dict)
    retries: dict[str, Retry] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    drifts: dict[str, Drift] = field(default_factory=dict)
    sets: dict[str, WorkloadSet] = field(default_factory=dict)
    set_revisions: dict[str, SetRevision] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    # Everything that was ever stored.
    wanted: set[tuple[WorkloadId, str, str]] = field(default_factory=set)
    bound: set[tuple[WorkloadId, NodeId, int]] = field(default_factory=set)
    stored: dict[WorkloadId, set[State]] = field(default_factory=dict)
    memberships: dict[WorkloadId, Membership] = field(default_factory=dict)
    dropped: set[WorkloadId] = field(default_factory=set)  # by a scheduler, not by a loss
    # When a record last required the removal of a copy.
    removed_at: dict[tuple[NodeId, WorkloadId], float] = field(default_factory=dict)
    # The highest epoch of each workload since the store was lost.
    epochs: dict[WorkloadId, int] = field(default_factory=dict)
    changed_at: dict[WorkloadId, float] = field(default_factory=dict)

    def take(self, units: Sequence[Unit], now: float) -> set[str]:
        """Apply committed units. Returns the changed keys."""
        touched: set[str] = set()
        for unit in units:
            for key in unit.deletes:
                self._forget(key, now)
            for key, value in unit.puts.items():
                self._put(key, value, now)
            touched.update(unit.puts, unit.deletes)
        for key in touched:
            workload, stale = self.workloads.get(key), self.tombstones.get(key)
            if stale is not None:
                self._crash_at(stale.assignment, now)
            if workload is not None and workload.desired is Desired.DELETED:
                self._crash_at(self.assignment(workload.id), now)
        return touched

    def lose(self) -> None:
        """The store lost all data. The history stays."""
        for records_of in (
            self.workloads,
            self.assignments,
            self.workload_statuses,
            self.retries,
            self.tombstones,
            self.nodes,
            self.drifts,
            self.sets,
            self.set_revisions,
            self.jobs,
            self.runs,
        ):
            records_of.clear()
        self.epochs.clear()

    def orphans(self) -> set[tuple[NodeId, WorkloadId]]:
        """Recorded orphans, which only an operator may adopt or delete."""
        return {
            (drift.node_id, drift.workload_id)
            for drift in self.drifts.values()
            if drift.type is DriftType.ORPHAN
        }

    def _crash_at(self, bound: Assignment | None, now: float) -> None:
        if bound is not None:
            self.removed_at[(bound.node_id, bound.workload_id)] = now

    def workload(self, workload_id: WorkloadId) -> Workload | None:
        return self.workloads.get(keys.workload_key(workload_id))

    def assignment(self, workload_id: WorkloadId) -> Assignment | None:
        return self.assignments.get(keys.assignment_key(workload_id))

    def workload_status(self, workload_id: WorkloadId) -> WorkloadStatus | None:
        return self.workload_statuses.get(keys.status_key(workload_id))

    def retry(self, workload_id: WorkloadId) -> Retry | None:
        return self.retries.get(keys.retry_key(workload_id))

    def tombstone(self, node_id: NodeId, workload_id: WorkloadId) -> Tombstone | None:
        return self.tombstones.get(keys.tombstone_key(node_id, workload_id))

    def holds(self, node_id: NodeId) -> dict[WorkloadId, Assignment]:
        """Reservations on a node by workload: assignments and tombstones."""
        found = {
            stale.assignment.workload_id: stale.assignment
            for stale in self.tombstones.values()
            if stale.assignment.node_id == node_id
        }
        found |= {
            bound.workload_id: bound
            for bound in self.assignments.values()
            if bound.node_id == node_id
        }
        return found

    def members(self, owner: str) -> list[Workload]:
        """The members of a set or a run, by id."""
        return [
            workload
            for _, workload in sorted(self.workloads.items())
            if workload.membership is not None and workload.membership.owner == owner
        ]

    def template(self, set_id: str, number: int) -> Template | None:
        revision = self.set_revisions.get(keys.set_revision_key(set_id, number))
        return revision.template if revision is not None else None

    def accounts_for(self, node_id: NodeId, workload_id: WorkloadId) -> bool:
        """Whether a record says that the node may have a copy of the workload."""
        bound = self.assignment(workload_id)
        if bound is not None and bound.node_id == node_id:
            return True
        return self.tombstone(node_id, workload_id) is not None

    def _put(self, key: str, value: bytes, now: float) -> None:
        kind = type_of(key)
        if kind is None:
            return
        match kind.read(key, value):
            case Workload() as workload:
                self.workloads[key] = workload
                self._note(workload, now)
            case Assignment() as assignment:
                self.assignments[key] = assignment
                self.bound.add((assignment.workload_id, assignment.node_id, assignment.epoch))
                self.changed_at[assignment.workload_id] = now
            case WorkloadStatus() as workload_status:
                self.workload_statuses[key] = workload_status
            case Retry() as retry:
                self.retries[key] = retry
            case Tombstone() as tombstone:
                self.tombstones[key] = tombstone
            case Drift() as drift:
                self.drifts[key] = drift
            case Node() as node:
                self.nodes[key] = node
            case WorkloadSet() as record:
                self.sets[key] = record
            case SetRevision() as revision:
                self.set_revisions[key] = revision
            case Job() as job:
                self.jobs[key] = job
            case Run() as run:
                self.runs[key] = run
            case _:
                return  # not used by any check

    def _note(self, workload: Workload, now: float) -> None:
        self.wanted.add((workload.id, workload.revision, workload.desired))
        self.stored.setdefault(workload.id, set()).add(state_of(workload))
        self.changed_at[workload.id] = now
        if workload.membership is not None:
            self.memberships[workload.id] = workload.membership

    def _forget(self, key: str, now: float) -> None:
        if (workload := self.workloads.pop(key, None)) is not None:
            self.changed_at[workload.id] = now
            self.dropped.add(workload.id)
        if (assignment := self.assignments.pop(key, None)) is not None:
            self.changed_at[assignment.workload_id] = now
        self.workload_statuses.pop(key, None)
        self.retries.pop(key, None)
        self.tombstones.pop(key, None)
        self.nodes.pop(key, None)
        self.drifts.pop(key, None)
        self.sets.pop(key, None)
        self.set_revisions.pop(key, None)
        self.jobs.pop(key, None)
        self.runs.pop(key, None)


@dataclass(slots=True)
class ReadChecks:
    """The stored states of each workload, and when each was replaced."""

    mirror: StoreMirror
    _now: dict[WorkloadId, State] = field(default_factory=dict)
    _past: dict[WorkloadId, list[tuple[State, float]]] = field(default_factory=dict)

    def committed(self, workload_ids: Iterable[WorkloadId], now: float) -> None:
        for workload_id in workload_ids:
            old = self._now.get(workload_id)
            new = state_of(self.mirror.workload(workload_id))
            if old != new:
                self._past.setdefault(workload_id, []).append((old, now))
                self._now[workload_id] = new

    def forget(self) -> None:
        """The store was lost: only memory is left to read from."""
        self._now.clear()
        self._past.clear()

    def too_old(self, views: Iterable[Any], *, age_seconds: float, now: float) -> str:
        """The first state that is older than allowed; empty if there is none."""
        shown = {
            WorkloadId(view.workload_id): Stored(
                view.revision_id, Desired(view.desired_state.lower())
            )
            for view in views
        }
        since = now - age_seconds - SLACK_SECONDS
        for workload_id, state in sorted(self._now.items()):
            seen = shown.get(workload_id)
            recent = (old for old, ended_at in self._past[workload_id] if ended_at >= since)
            if seen != state and seen not in recent:
                return f"{workload_id} was returned as {seen} at age {age_seconds:.1f}s, but is {state}"
        return ""


def changed_keys(units: Sequence[Unit]) -> str:
    """For the trace, without events."""
    changed = [f"+{key}" for unit in units for key in unit.puts if not key.startswith(keys.EVENTS)]
    changed += [
        f"-{key}" for unit in units for key in unit.deletes if not key.startswith(keys.EVENTS)
    ]
    return " ".join(changed) or "events"
