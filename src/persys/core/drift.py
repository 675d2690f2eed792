"""Detects drift: a node differs from the records, and no operation in progress explains it.

`mismatch` checks one assigned workload: it had converged, no order is in flight, and the agent has not
repaired the difference within the grace. It holds when `reconcile` sends the order again, so the drift is
stored in the same commit as its repair. A different state is stored at once and repaired after the grace.

`reported_drift` is the drift that the agent reports for a running workload that differs from how it was
created. The agent repairs it, so nothing is sent.

`unassigned_copies` and `orphans` check everything that a node lists. An orphan is neither assigned to the
node nor has a tombstone. Only an operator adopts or deletes it, so an empty store cannot cause a deletion.
`describe_copies` shows the copies of a workload to users.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.core.agent.deviations import DRIFT
from persys.core.nodes import Phase
from persys.core.reconcile.situation import (
    Copy,
    Policy,
    Situation,
    awaits_retry,
    fresh_observation,
    has_converged,
)
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment
from persys.model.status import Actual, Drift, DriftType, Observation
from persys.model.workload import Desired, Workload

# Orphans stored per node: a faulty node must not fill the store.
ORPHANS_MAX = 200


@dataclass(frozen=True, slots=True)
class UnassignedCopy:
    """A copy that a node lists although the workload is not assigned to it."""

    seen: Observation
    since: datetime  # when it was first listed
    counts: bool = False  # it was proven, or was stored before proofs existed
    proven: bool = False  # the current observation has a proof of its assignment
    adoptable: bool | None = None  # None: not yet requested from its node


@dataclass(frozen=True, slots=True)
class OrphanChanges:
    found: tuple[Drift, ...]
    gone: tuple[Drift, ...]
    unrecorded: int  # beyond ORPHANS_MAX


def mismatch(situation: Situation, policy: Policy, *, now: datetime) -> Drift | None:
    seen, since = situation.observation, situation.observed_since
    if seen is None or since is None or _is_in_progress(situation, now):
        return None
    kind, detail = _difference(seen, situation.workload)
    if kind is None or (kind is not DriftType.STATE and now < since + policy.missing_grace):
        return None
    return Drift(
        seen.node_id,
        seen.workload_id,
        kind,
        now,
        detail=detail,
        revision=seen.revision,
        epoch=seen.epoch,
        actual=seen.actual,
    )


def reported_drift(situation: Situation, *, now: datetime) -> Drift | None:
    """Stored at once: the agent reports it for a moment before it repairs it."""
    seen = fresh_observation(situation, Actual.RUNNING)
    if (
        seen is None
        or situation.workload.desired is not Desired.RUNNING
        or not (detail := seen.metadata.get(DRIFT, ""))
    ):
        return None
    return Drift(
        seen.node_id,
        seen.workload_id,
        DriftType.STATE,
        now,
        detail=f"runs, but not as it was created: {detail}",
        revision=seen.revision,
        epoch=seen.epoch,
        actual=seen.actual,
    )


def unassigned_copies(
    listed: Iterable[Observation],
    bound: Collection[WorkloadId],
    tombstones: Collection[WorkloadId],
) -> dict[WorkloadId, Observation]:
    """Listed copies that are neither assigned to the node nor have a tombstone."""
    return {
        seen.workload_id: seen
        for seen in listed
        if seen.workload_id not in bound
        and seen.workload_id not in tombstones
        and seen.actual is not Actual.ABSENT
    }


def orphans(
    node_id: NodeId,
    found: Mapping[WorkloadId, UnassignedCopy],
    recorded: Mapping[WorkloadId, Drift],
    elsewhere: Mapping[WorkloadId, Assignment],
    *,
    grace: timedelta,
    now: datetime,
) -> OrphanChanges:
    """Orphans to store and to clear. `elsewhere` has the assignments of workloads on other nodes."""
    lasting = sorted(
        name
        for name, unassigned in found.items()
        # A list may be older than a decision made while it was in flight.
        if name not in recorded and now >= unassigned.since + grace
    )
    gone = tuple(drift for name, drift in recorded.items() if name not in found)
    capacity = max(0, ORPHANS_MAX - (len(recorded) - len(gone)))
    return OrphanChanges(
        tuple(
            _orphan(node_id, found[name], elsewhere.get(name), now) for name in lasting[:capacity]
        ),
        gone,
        len(lasting[capacity:]),
    )


def _is_in_progress(situation: Situation, now: datetime) -> bool:
    retry = situation.retry
    return (
        situation.assignment is None
        or situation.phase is not Phase.ALIVE
        or situation.dispatch is not None
        or situation.workload.desired is Desired.DELETED
        or (retry is not None and (retry.next_at is None or awaits_retry(situation, retry, now)))
        or not has_converged(situation)
    )


def _difference(seen: Observation, workload: Workload) -> tuple[DriftType | None, str]:
    """A failure is handled elsewhere; 'pending' and 'unknown' are not drift."""
    if seen.actual is Actual.ABSENT:
        return (
            DriftType.MISSING,
            f"desired state is {workload.desired}, but the node does not have it",
        )
    if seen.actual not in (Actual.RUNNING, Actual.STOPPED):
        return None, ""
    if seen.revision not in ("", workload.revision):
        detail = f"revision is {workload.revision}, but the node has {seen.revision}"
        return DriftType.REVISION, detail
    wanted = Actual.RUNNING if workload.desired is Desired.RUNNING else Actual.STOPPED
    if seen.actual is not wanted:
        return DriftType.STATE, f"desired state is {workload.desired}, but it is {seen.actual}"
    return None, ""


def _orphan(
    node_id: NodeId, found: UnassignedCopy, bound: Assignment | None, now: datetime
) -> Drift:
    seen, detail = found.seen, "no matching workload"
    if bound is not None:
        detail = f"assigned to {bound.node_id} with epoch {bound.epoch}"
    return Drift(
        node_id,
        seen.workload_id,
        DriftType.ORPHAN,
        now,
        detail=f"{detail}; unchanged until an operator adopts or deletes it",
        revision=seen.revision,
        epoch=seen.epoch,
        actual=seen.actual,
        counts=found.counts,
    )


SHOWN_MAX = 20  # copies in an explanation


def describe_copies(workload_id: WorkloadId, copies: Iterable[Copy]) -> list[str]:
    lines = [_line(workload_id, copy) for copy in copies]
    if len(lines) > SHOWN_MAX:
        return [*lines[:SHOWN_MAX], f"and {len(lines) - SHOWN_MAX} more"]
    return lines


def _line(workload_id: WorkloadId, copy: Copy) -> str:
    node_id = copy.node_id
    if copy.being_removed:
        return _old_copy(copy)
    commands = (
        f"`persysctl orphans get {node_id} {workload_id}` shows it, "
        f"`persysctl orphans delete {node_id} {workload_id}` removes it"
    )
    if copy.counts:
        return f"{node_id}: an orphan with epoch {copy.epoch}; {commands}"
    return (
        f"{node_id}: the node reports a copy with epoch {copy.epoch} without proof of assignment; "
        f"it is ignored; {commands}"
    )


def _old_copy(copy: Copy) -> str:
    if copy.kept is not None:
        return (
            f"{copy.node_id}: the offloaded copy with epoch {copy.epoch}, which is removed when the "
            "workload runs in tier 0"
        )
    line = f"{copy.node_id}: an old copy with epoch {copy.epoch}, which is being removed"
    if not copy.lost:
        return line
    if not copy.may_run:
        return f"{line} when the node returns; it does not run"
    return (
        f"{line} when the node returns; if the machine does not return: "
        f"`persysctl node confirm-dead {copy.node_id}`"
    )
