"""Merges records after a loss: from a snapshot, from memory, and from the reports of the nodes.

The copy with the highest epoch wins: the workload is assigned there with a new epoch, which its agent accepts
without a restart. An older copy gets a tombstone only if the workload is known and holds no data; any other
stays as an orphan for the operator. Nothing is started twice: a workload with data that may run on a node
that did not respond is left out, and so is a member of a job that no node reports, because it may have run.
No node gets more than its capacity: copies that run as recorded come first, then other running copies, then
those to be removed, then records.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from msgspec.structs import replace

from persys.core.epochs import credible
from persys.core.placement.requirements import holds_data, requirements_of
from persys.core.reconcile.situation import COMPLETED
from persys.core.secrets import secret_names
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Node
from persys.model.placement import Assignment, HostPort, Resources, Tombstone
from persys.model.status import Actual, Observation, WorkloadStatus
from persys.model.workload import Desired, StoredIntent, Workload


@dataclass(frozen=True, slots=True)
class Recorded:
    """The records that are still available."""

    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    workloads: Mapping[WorkloadId, Workload] = field(default_factory=dict)
    assignments: Mapping[WorkloadId, Assignment] = field(default_factory=dict)
    tombstones: tuple[Tombstone, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node reports. `problem`: why it did not respond."""

    node: Node
    copies: Sequence[Observation] = ()
    intents: Sequence[StoredIntent] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    nodes: dict[NodeId, Node]
    workloads: dict[WorkloadId, Workload]
    assignments: dict[WorkloadId, Assignment]
    tombstones: list[Tombstone]
    left_out: list[str]
    answered: frozenset[NodeId]
    runs: dict[tuple[NodeId, WorkloadId], Workload]  # as its agent stores it, maybe not the newest
    epochs: Iterator[int]  # above every epoch used before

    def last_epoch(self) -> int:
        """The highest epoch in use when the merge is stored. Call it last."""
        return next(self.epochs)

    def still_holds(self, workload_status: WorkloadStatus) -> bool:
        """Whether a status from before the merge is still valid.

        The report of a node that responded replaces it, except for work that ran to completion.
        """
        bound = self.assignments.get(workload_status.workload_id)
        return (
            bound is None or bound.node_id not in self.answered or workload_status.code == COMPLETED
        )


@dataclass(frozen=True, slots=True)
class _Copy:
    node_id: NodeId
    epoch: int
    seen: Observation


def merge(
    recorded: Recorded,
    reports: Sequence[NodeReport],
    *,
    epochs_used: int,
    allow_secrets: Collection[str] = (),
    now: datetime,
) -> Merged:
    """`allow_secrets`: secrets that may be resolved although only the reports of nodes refer to them.

    `epochs_used`: no epoch above it was assigned before, whatever nodes report. Every assignment gets an
    epoch above it: copies on a node that does not respond may have a higher epoch than the record, and would
    refuse the record's.
    """
    silent = {report.node.id: report.problem for report in reports if report.problem}
    answered = {report.node.id for report in reports if not report.problem}
    reported = _newest_intents(reports)
    withheld = withheld_secrets(recorded, reported.values(), allow_secrets)
    intents = {name: kept for name, kept in reported.items() if name not in withheld}
    copies = _copies(reports, epochs_used)
    merged = Merged(
        {**recorded.nodes, **{report.node.id: report.node for report in reports}},
        {},
        {},
        list(recorded.tombstones),
        [f"node {node_id} did not respond: {why}" for node_id, why in sorted(silent.items())],
        frozenset(answered),
        {
            (report.node.id, intent.workload.id): intent.workload
            for report in reports
            for intent in report.intents
        },
        count(epochs_used + 1),
    )
    members: list[Workload] = []  # of jobs, which no node reports
    for workload_id in sorted({*recorded.workloads, *intents}):
        workload = _newest(recorded.workloads.get(workload_id), intents.get(workload_id))
        bound = recorded.assignments.get(workload_id)
        found = _ranked(copies.pop(workload_id, []), bound)
        if workload.runs_once and not found:
            members.append(workload)
            _leave_out_member(_Merge(merged, silent, now), workload, bound)
        else:
            _restore(_Merge(merged, silent, now), workload, bound, found)
    merged.left_out.extend(_described_members(members))
    _check_capacity(merged, recorded)
    for workload_id, names in sorted(withheld.items()):
        merged.left_out.append(
            f"{workload_id} on {reported[workload_id].node_id}: only the report of the node refers to "
            f"secrets {', '.join(sorted(names))}; check the spec and allow them (--allow-secrets), "
            "or adopt the orphan"
        )
    for workload_id, unknown in sorted(copies.items()):
        for copy in unknown if workload_id not in withheld else ():
            merged.left_out.append(
                f"{workload_id} on {copy.node_id}: its agent has no stored intent; it stays as an orphan"
            )
    return merged


def withheld_secrets(
    recorded: Recorded, intents: Iterable[StoredIntent], allowed: Collection[str]
) -> dict[WorkloadId, frozenset[str]]:
    """Secrets that only a node's report refers to, by workload. A node could name any secret to get it."""
    found: dict[WorkloadId, frozenset[str]] = {}
    for intent in intents:
        workload = intent.workload
        known = recorded.workloads.get(workload.id)
        names = secret_names(workload.spec) - frozenset(allowed)
        if known is not None:
            names -= secret_names(known.spec)
        if names:
            found[workload.id] = names
    return found


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge in progress: its result, the nodes that did not respond with the reason, and the time."""

    merged: Merged
    silent: Mapping[NodeId, str]
    now: datetime


def _restore(
    merge: _Merge, workload: Workload, bound: Assignment | None, found: list[_Copy]
) -> None:
    """Restore one workload. `found` is in order of rank."""
    merged = merge.merged
    if bound is not None and _trusts_record(bound, found, merged.answered):
        if _may_run_elsewhere(merge, workload, bound):
            merged.left_out.append(
                f"{workload.id}: assigned to {bound.node_id}, which does not have it, and it holds data; it "
                f"may run on {', '.join(sorted(merge.silent))}, which did not respond"
            )
            return
        merged.assignments[workload.id] = replace(bound, epoch=next(merged.epochs))
        _leave_orphans(merged, workload, found)
    elif found:
        _assign_to_newest(merge, workload, bound, found[0])
        _retire_older(merge, workload, found[1:])
    merged.workloads[workload.id] = workload


def _leave_out_member(merge: _Merge, workload: Workload, bound: Assignment | None) -> None:
    """A copy on a node that did not respond is removed when the node returns."""
    if bound is not None and bound.node_id in merge.silent:
        merged = merge.merged
        _drop_tombstone(merged, workload.id, bound.node_id)
        stale = replace(bound, epoch=next(merged.epochs))
        merged.tombstones.append(Tombstone(stale, merge.now))


def _described_members(members: Iterable[Workload]) -> Iterator[str]:
    counts = Counter(one.membership.owner for one in members if one.membership is not None)
    for run_id, number in sorted(counts.items()):
        yield (
            f"run {run_id}: {number} members that no node reports; they may have run, so they are not"
            " started again"
        )


def _may_run_elsewhere(merge: _Merge, workload: Workload, bound: Assignment) -> bool:
    """Its assigned node does not have it, and a node that did not respond may run it with its data."""
    return (
        bool(merge.silent)
        and bound.node_id in merge.merged.answered
        and holds_data(workload)
        and workload.desired is Desired.RUNNING
    )


def _assign_to_newest(
    merge: _Merge, workload: Workload, bound: Assignment | None, newest: _Copy
) -> None:
    merged = merge.merged
    merged.assignments[workload.id] = _assignment(merged, workload, newest.node_id, merge.now)
    _drop_tombstone(merged, workload.id, newest.node_id)
    if bound is not None and bound.node_id not in merged.answered and not holds_data(workload):
        # In case its node returns. A copy there may be newer than the record.
        stale = replace(bound, epoch=next(merged.epochs))
        merged.tombstones.append(Tombstone(stale, merge.now))
    if newest.seen.revision not in ("", workload.revision):
        merged.left_out.append(
            f"{workload.id}: {newest.node_id} has revision {newest.seen.revision}, whose spec is lost; "
            f"it is updated to {workload.revision}"
        )


def _retire_older(merge: _Merge, workload: Workload, older: list[_Copy]) -> None:
    """Older copies get a tombstone, or stay as orphans if they may hold data."""
    if holds_data(workload):
        _leave_orphans(merge.merged, workload, older)
        return
    for copy in older:
        stale = _assignment(merge.merged, workload, copy.node_id, merge.now)
        _drop_tombstone(merge.merged, workload.id, copy.node_id)
        merge.merged.tombstones.append(Tombstone(stale, merge.now))


def _leave_orphans(merged: Merged, workload: Workload, copies: list[_Copy]) -> None:
    for copy in copies:
        merged.left_out.append(f"{workload.id}: an older copy on {copy.node_id} stays as an orphan")


def _trusts_record(bound: Assignment, found: list[_Copy], answered: Collection[NodeId]) -> bool:
    """No node has a copy, or all are older than the record's, whose node did not respond."""
    return not found or (bound.node_id not in answered and found[0].epoch < bound.epoch)


def _check_capacity(merged: Merged, recorded: Recorded) -> None:
    """Leave out what exceeds the capacity of its node.

    Orphans had no reservation, and a copy may have grown since the record.
    """
    tombstones = _assignments_of(recorded.tombstones)
    before = {
        (one.node_id, one.workload_id): one for one in (*tombstones, *recorded.assignments.values())
    }

    def rank(one: Assignment) -> tuple[int, WorkloadId]:
        copy = (one.node_id, one.workload_id)
        if copy not in merged.runs:
            return 4, one.workload_id  # only the record has it there
        if merged.assignments.get(one.workload_id) != one:
            return 3, one.workload_id  # an older copy, which is to be removed
        if copy not in before:
            return 2, one.workload_id
        return (0 if _is_within(one, before[copy]) else 1), one.workload_id

    held: dict[NodeId, dict[WorkloadId, Assignment]] = {}
    for one in (*_assignments_of(merged.tombstones), *merged.assignments.values()):
        held.setdefault(one.node_id, {})[one.workload_id] = one
    known: dict[NodeId, Resources] = {}
    for copy, one in before.items():
        if copy in merged.runs:
            known[one.node_id] = known.get(one.node_id, Resources()) + one.reserved
    for node_id in sorted(merged.answered & held.keys()):
        free = _capacity(merged.nodes[node_id], known.get(node_id, Resources()))
        ports = set[HostPort]()
        for one in sorted(held[node_id].values(), key=rank):
            if one.reserved.fits_in(free) and not one.host_ports & ports:
                free, ports = free - one.reserved, ports | one.host_ports
            else:
                _leave_out(merged, one)


def _is_within(one: Assignment, record: Assignment) -> bool:
    return one.reserved.fits_in(record.reserved) and one.host_ports <= record.host_ports


def _capacity(node: Node, known: Resources) -> Resources:
    """What may be reserved: a node that has become smaller keeps what it runs by the records (`known`)."""
    has = node.capabilities.allocatable
    return Resources(
        max(has.cpu_millicores, known.cpu_millicores),
        max(has.memory_mb, known.memory_mb),
        max(has.disk_gb, known.disk_gb),
    )


def _assignments_of(tombstones: Iterable[Tombstone]) -> list[Assignment]:
    return [tombstone.assignment for tombstone in tombstones]


def _leave_out(merged: Merged, one: Assignment) -> None:
    """Leave out an assignment that does not fit on its node."""
    name, node_id = one.workload_id, one.node_id
    runs = (node_id, name) in merged.runs
    if merged.assignments.get(name) != one:
        _drop_tombstone(merged, name, node_id)
        merged.left_out.append(f"{name}: an older copy on {node_id} stays as an orphan")
        return
    del merged.assignments[name]
    if not runs and not holds_data(merged.workloads[name]):
        return  # it is placed on another node
    del merged.workloads[name]
    merged.tombstones[:] = [
        each for each in merged.tombstones if each.assignment.workload_id != name
    ]
    why = "it stays as an orphan" if runs else "it is assigned there, and holds data"
    merged.left_out.append(f"{name}: not enough capacity on {node_id}; {why}")


def _assignment(merged: Merged, workload: Workload, node_id: NodeId, now: datetime) -> Assignment:
    """Reserves what the running copy was given; a newer revision is resized later if that fits."""
    needs = requirements_of(merged.runs.get((node_id, workload.id), workload))
    return Assignment(
        workload.id,
        node_id,
        next(merged.epochs),
        now,
        reserved=needs.resources,
        host_ports=needs.host_ports,
        why="found there in a recovery",
        rules=needs.rules,
        pools=needs.pools,
    )


def _drop_tombstone(merged: Merged, workload_id: WorkloadId, node_id: NodeId) -> None:
    merged.tombstones[:] = [
        one
        for one in merged.tombstones
        if (one.assignment.workload_id, one.assignment.node_id) != (workload_id, node_id)
    ]


def _copies(reports: Iterable[NodeReport], epochs_used: int) -> dict[WorkloadId, list[_Copy]]:
    copies: dict[WorkloadId, list[_Copy]] = {}
    for report in reports:
        kept = {intent.workload.id: intent.epoch for intent in report.intents}
        for seen in report.copies:
            if seen.actual is not Actual.ABSENT:
                reported = max(seen.epoch, kept.get(seen.workload_id, 0))
                epoch = credible(reported, epochs_used)
                copy = _Copy(report.node.id, epoch, seen)
                copies.setdefault(seen.workload_id, []).append(copy)
    return copies


def _ranked(copies: list[_Copy], bound: Assignment | None) -> list[_Copy]:
    """A copy without an epoch on the assigned node has the record's epoch."""
    if bound is not None:
        copies = [
            _Copy(copy.node_id, bound.epoch, copy.seen)
            if copy.epoch == 0 and copy.node_id == bound.node_id
            else copy
            for copy in copies
        ]

    def rank(copy: _Copy) -> tuple[int, bool, bool, NodeId]:
        on_record = bound is not None and copy.node_id == bound.node_id
        return -copy.epoch, not on_record, copy.seen.actual is not Actual.RUNNING, copy.node_id

    return sorted(copies, key=rank)


def _newest_intents(reports: Iterable[NodeReport]) -> dict[WorkloadId, StoredIntent]:
    newest: dict[WorkloadId, StoredIntent] = {}
    for intent in (intent for report in reports for intent in report.intents):
        known = newest.get(intent.workload.id)
        if known is None or _age_rank(intent) > _age_rank(known):
            newest[intent.workload.id] = intent
    return newest


def _age_rank(intent: StoredIntent) -> tuple[int, datetime]:
    return intent.epoch, intent.workload.updated_at


def _newest(recorded: Workload | None, kept: StoredIntent | None) -> Workload:
    if recorded is None:
        assert kept is not None
        return kept.workload
    if kept is None or recorded.updated_at >= kept.workload.updated_at:
        return recorded
    return replace(kept.workload, created_at=recorded.created_at)
