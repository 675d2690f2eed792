"""Which mode the control plane is in, from what its store answers.

    normal ──── no answer, or takes no writes ───▶ degraded ──── written and read again ───▶ normal
    normal, degraded ──── answers, and what it held is gone ───▶ recovery
    recovery ──── the marker it waits for is back, or an operator ended it ───▶ normal

Connectivity decides, not one bad value. What is lost stays lost while the store is silent, so recovery does
not become degraded. A store without the cluster's marker is new only if nobody remembers anything of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from persys.model.mode import ClusterMarker, Mode

ACCEPTED_MAX = 256


@dataclass(frozen=True, slots=True)
class Standing:
    mode: Mode = Mode.NORMAL
    reason: str = ""
    awaits: str = ""  # in recovery: the uid whose marker would end it; "" if nobody knows


@dataclass(frozen=True, slots=True)
class Silent:
    """The store gave no answer, or did not take a write."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The store answers, and what it held is gone."""

    reason: str
    awaits: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """What the store has was read, and it takes writes."""

    reason: str = ""


Outcome = Silent | Lost | Whole


def after(standing: Standing, outcome: Outcome) -> Standing:
    match outcome:
        case Silent(reason=reason):
            if standing.mode is Mode.RECOVERY:
                return standing
            return Standing(Mode.DEGRADED, reason)
        case Lost(reason=reason, awaits=awaits):
            return Standing(Mode.RECOVERY, reason, awaits)
        case Whole():
            return Standing()
        case unreachable:
            assert_never(unreachable)


def is_awaited(standing: Standing, marker: ClusterMarker) -> bool:
    """Whether the store's marker says that what was lost is back."""
    return standing.mode is Mode.RECOVERY and standing.awaits in ("", marker.uid)


@dataclass(frozen=True, slots=True)
class Same:
    """The store is this cluster's."""

    marker: ClusterMarker


@dataclass(frozen=True, slots=True)
class New:
    """An empty store, and nobody remembers anything else: a cluster begins."""


def judge(
    marker: ClusterMarker | None, *, holds_records: bool, known_uid: str, remembers: bool
) -> Same | New | Lost:
    """What a store is that was just read. `remembers`: this process has records of the cluster in memory."""
    if marker is None:
        if holds_records:
            return Lost(
                "the store holds records but not the cluster's marker: it is damaged", known_uid
            )
        if remembers:
            return Lost("the store answers, and what it held is gone", known_uid)
        return New()
    if known_uid and known_uid not in (marker.uid, *marker.accepted):
        return Lost(f"the store is of cluster {marker.uid}, not of {known_uid}", known_uid)
    return Same(marker)


def accepted_uids(uid: str, known: Iterable[str], said: Iterable[str]) -> tuple[str, ...]:
    """The other clusters whose loss is accepted: those on record first, then those that agents named.

    Agents may name any number, so only so many are kept.
    """
    others = dict.fromkeys([*known, *sorted(said)])
    kept = [one for one in others if one not in ("", uid)][:ACCEPTED_MAX]
    return tuple(sorted(kept))


def judge_newcomer(
    marker: ClusterMarker,
    *,
    said_uid: str,
    workload_count: int,
    holds_workloads: bool,
    claims: int,
    others: int,
) -> Lost | None:
    """What agents say of themselves can tell that an empty store is not a new one.

    `claims` counts the nodes that say they belong to that cluster, this one included, `others` the
    registered nodes that do not. A minority does not freeze a cluster: what it has is recorded as orphans,
    and nothing of it is deleted.
    """
    if not is_strange(marker, said_uid) or workload_count == 0 or holds_workloads:
        return None
    if claims <= others:
        return None
    return Lost(
        f"the store is empty, and a node has {workload_count} workloads of cluster {said_uid}",
        awaits=said_uid,
    )


def is_strange(marker: ClusterMarker, said_uid: str) -> bool:
    """Whether an agent says that it belongs to another cluster."""
    return said_uid not in ("", marker.uid, *marker.accepted)
