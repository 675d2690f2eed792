"""Decides the mode of the control plane from the responses of its store.

    normal ──── no response, or no writes accepted ───▶ degraded ──── written and read again ───▶ normal
    normal, degraded ──── responds, but its records are gone ───▶ recovery
    recovery ──── the expected marker is back, or an operator ended it ───▶ normal

Connectivity decides, not one bad value. An unreachable store does not turn recovery into degraded. A store
without the cluster's marker is new only if neither this process nor an agent knows records of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from persys.model.cluster import ClusterMarker, Mode

ACCEPTED_MAX = 256


@dataclass(frozen=True, slots=True)
class ModeCondition:
    mode: Mode = Mode.NORMAL
    reason: str = ""
    awaits: str = ""  # in recovery: the uid whose marker ends it; "" if unknown


@dataclass(frozen=True, slots=True)
class StoreUnreachable:
    """The store did not respond, or did not accept a write."""

    reason: str


@dataclass(frozen=True, slots=True)
class RecordsLost:
    """The store responds, but its records are gone."""

    reason: str
    awaits: str = ""


@dataclass(frozen=True, slots=True)
class StoreHealthy:
    """The store was read and accepts writes."""

    reason: str = ""


Outcome = StoreUnreachable | RecordsLost | StoreHealthy


def after(condition: ModeCondition, outcome: Outcome) -> ModeCondition:
    match outcome:
        case StoreUnreachable(reason=reason):
            if condition.mode is Mode.RECOVERY:
                return condition
            return ModeCondition(Mode.DEGRADED, reason)
        case RecordsLost(reason=reason, awaits=awaits):
            return ModeCondition(Mode.RECOVERY, reason, awaits)
        case StoreHealthy():
            return ModeCondition()
        case unreachable:
            assert_never(unreachable)


def is_awaited(condition: ModeCondition, marker: ClusterMarker) -> bool:
    """Whether the store has the expected marker: the lost records are back."""
    return condition.mode is Mode.RECOVERY and condition.awaits in ("", marker.uid)


@dataclass(frozen=True, slots=True)
class SameCluster:
    """The store belongs to this cluster."""

    marker: ClusterMarker


@dataclass(frozen=True, slots=True)
class NewCluster:
    """An empty store without a known cluster: a new cluster starts."""


def classify_store(
    marker: ClusterMarker | None, *, holds_records: bool, known_uid: str, remembers: bool
) -> SameCluster | NewCluster | RecordsLost:
    """Classify a store that was just read. `remembers`: this process holds records of the cluster."""
    if marker is None:
        if holds_records:
            return RecordsLost(
                "the store holds records but not the cluster's marker: it is damaged", known_uid
            )
        if remembers:
            return RecordsLost("the store responds, but its records are gone", known_uid)
        return NewCluster()
    if known_uid and known_uid not in (marker.uid, *marker.accepted):
        return RecordsLost(
            f"the store belongs to cluster {marker.uid}, not to {known_uid}", known_uid
        )
    return SameCluster(marker)


def accepted_uids(uid: str, known: Iterable[str], reported: Iterable[str]) -> tuple[str, ...]:
    """The other clusters whose loss is accepted: stored ones first, then those that agents reported.

    Agents may report any number, so at most ACCEPTED_MAX are stored.
    """
    others = dict.fromkeys([*known, *sorted(reported)])
    kept = [one for one in others if one not in ("", uid)][:ACCEPTED_MAX]
    return tuple(sorted(kept))


def detect_lost_records(
    marker: ClusterMarker,
    *,
    reported_uid: str,
    workload_count: int,
    holds_workloads: bool,
    claims: int,
    others: int,
) -> RecordsLost | None:
    """Detect from a registering agent that an empty store has lost its records.

    `claims` counts the nodes that report that cluster, including this one, `others` the registered nodes that
    do not. A minority does not freeze a cluster: its workloads are stored as orphans, and none is deleted.
    """
    if not is_of_other_cluster(marker, reported_uid) or workload_count == 0 or holds_workloads:
        return None
    if claims <= others:
        return None
    return RecordsLost(
        f"the store is empty, and a node has {workload_count} workloads of cluster {reported_uid}",
        awaits=reported_uid,
    )


def is_of_other_cluster(marker: ClusterMarker, reported_uid: str) -> bool:
    """Whether an agent reports that it belongs to another cluster."""
    return reported_uid not in ("", marker.uid, *marker.accepted)
