"""Where a node differs from what is recorded, told apart from what is merely under way.

`mismatch` looks at one bound workload: it was as it should be, nothing is on its way to the node, and the
node has not healed the difference within its grace. It holds at the very moment at which `reconcile` sends
the order again, so a drift is noted in the commit of its remedy. Another state is noted at once, in the
commit that shows it, and remedied after the grace.

`reported` is what the node itself says of a workload that runs and is not as it was created. The node repairs
that, so nothing is sent.

`strangers` and `orphans` look at all that a node lists. An orphan is neither bound to the node nor named by a
tombstone. Nothing is ever done to it but by an operator's word, so an empty store can command no deletion.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from persys.core.deviations import DRIFT
from persys.core.liveness import Phase
from persys.core.situation import Policy, Situation, awaits_retry, current, was_settled
from persys.model.assignment import Assignment
from persys.model.drift import Drift, DriftType
from persys.model.ids import NodeId, WorkloadId
from persys.model.observation import Actual, Observation
from persys.model.workload import Desired, Workload

# What one node may have recorded as orphans: one that lists nonsense must not fill the store.
ORPHANS_MAX = 200


@dataclass(frozen=True, slots=True)
class Stranger:
    """A copy that a node lists and nobody bound there."""

    seen: Observation
    since: datetime  # listed ever since
    counts: bool = False  # it was proven, or was on record before proofs
    proven: bool = False  # what is seen now has a proof of its assignment
    adoptable: bool | None = None  # None: its node was not asked yet


@dataclass(frozen=True, slots=True)
class OrphanNews:
    found: tuple[Drift, ...]
    gone: tuple[Drift, ...]
    unrecorded: int  # beyond ORPHANS_MAX


def mismatch(situation: Situation, policy: Policy, *, now: datetime) -> Drift | None:
    seen, since = situation.observation, situation.observed_since
    if seen is None or since is None or _is_under_way(situation, now):
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


def reported(situation: Situation, *, now: datetime) -> Drift | None:
    """Noted at once: the node has shown it for a moment before it repairs it."""
    seen = current(situation, Actual.RUNNING)
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


def strangers(
    listed: Iterable[Observation],
    bound: Collection[WorkloadId],
    tombstones: Collection[WorkloadId],
) -> dict[WorkloadId, Observation]:
    """What a node lists and should not have, so far as is recorded."""
    return {
        seen.workload_id: seen
        for seen in listed
        if seen.workload_id not in bound
        and seen.workload_id not in tombstones
        and seen.actual is not Actual.ABSENT
    }


def orphans(
    node_id: NodeId,
    found: Mapping[WorkloadId, Stranger],
    recorded: Mapping[WorkloadId, Drift],
    elsewhere: Mapping[WorkloadId, Assignment],
    *,
    grace: timedelta,
    now: datetime,
) -> OrphanNews:
    """What to note and what to strike out. `elsewhere` has the assignments of those that are bound."""
    lasting = sorted(
        name
        for name, stranger in found.items()
        # A list may be older than what was decided while it travelled.
        if name not in recorded and now >= stranger.since + grace
    )
    gone = tuple(drift for name, drift in recorded.items() if name not in found)
    room = max(0, ORPHANS_MAX - (len(recorded) - len(gone)))
    return OrphanNews(
        tuple(_orphan(node_id, found[name], elsewhere.get(name), now) for name in lasting[:room]),
        gone,
        len(lasting[room:]),
    )


def _is_under_way(situation: Situation, now: datetime) -> bool:
    retry = situation.retry
    return (
        situation.assignment is None
        or situation.phase is not Phase.ALIVE
        or situation.dispatch is not None
        or situation.workload.desired is Desired.DELETED
        or (retry is not None and (retry.next_at is None or awaits_retry(situation, retry, now)))
        or not was_settled(situation)
    )


def _difference(seen: Observation, workload: Workload) -> tuple[DriftType | None, str]:
    """A failure has its own way, and 'pending' or 'unknown' is no difference yet."""
    if seen.actual is Actual.ABSENT:
        return DriftType.MISSING, f"wanted {workload.desired}, but the node does not have it"
    if seen.actual not in (Actual.RUNNING, Actual.STOPPED):
        return None, ""
    if seen.revision not in ("", workload.revision):
        return DriftType.REVISION, f"wanted {workload.revision}, but the node has {seen.revision}"
    wanted = Actual.RUNNING if workload.desired is Desired.RUNNING else Actual.STOPPED
    if seen.actual is not wanted:
        return DriftType.STATE, f"wanted {workload.desired}, but it is {seen.actual}"
    return None, ""


def _orphan(node_id: NodeId, found: Stranger, bound: Assignment | None, now: datetime) -> Drift:
    seen, detail = found.seen, "nobody asked for it"
    if bound is not None:
        detail = f"it is bound to {bound.node_id} with epoch {bound.epoch}"
    return Drift(
        node_id,
        seen.workload_id,
        DriftType.ORPHAN,
        now,
        detail=f"{detail}; left alone until an operator adopts or deletes it",
        revision=seen.revision,
        epoch=seen.epoch,
        actual=seen.actual,
        counts=found.counts,
    )
