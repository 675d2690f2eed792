"""Decides when a workload may use nodes of tiers above 0, such as federated clusters.

Nothing leaves tier 0 unless its rules allow it, and a workload with data needs a second consent. With
`when-full` it first waits for capacity in tier 0, also if it runs on a node that its new rules exclude. A
workload of another cluster is never offloaded again.
"""

from datetime import datetime

from persys.core.federation.cluster_ids import HOME_CLUSTER
from persys.core.placement.requirements import (
    HOME_ONLY,
    Requirements,
    TierAccess,
    holds_data,
    requirements_of,
)
from persys.core.reconcile.situation import Situation
from persys.model.placement import OFFLOADED_STOP_AFTER_SECONDS_MIN, Offload
from persys.model.status import Status
from persys.model.workload import Workload

_LOOP = TierAccess(why_not="it was offloaded to this cluster by another", change="")
_DATA = TierAccess(
    why_not="it has data, and offload_data is not set", change="set offload_data: true"
)
_STOP_AFTER = TierAccess(
    why_not=f"its stop_after is shorter than {OFFLOADED_STOP_AFTER_SECONDS_MIN} s",
    change=f"set stop_after to {OFFLOADED_STOP_AFTER_SECONDS_MIN} s or more",
)
_ALWAYS = TierAccess(offload=True)
_PREFERRED = TierAccess(offload=True, preferred=True)
_WAITING = (Status.PENDING, Status.UNKNOWN)


def placement_needs(situation: Situation, now: datetime) -> Requirements:
    """The requirements of the workload, with the tiers that it may use now."""
    return requirements_of(situation.workload, tier_access(situation, now))


def needs_on_any_tier(workload: Workload) -> Requirements:
    """The requirements of the workload, with the tiers that its rules allow after the waiting time."""
    return requirements_of(workload, _allowed(workload))


def tier_access(situation: Situation, now: datetime) -> TierAccess:
    allowed = _allowed(situation.workload)
    opens_at = offload_at(situation, now)
    if opens_at is None or now >= opens_at:
        return allowed
    seconds = situation.offload_after.total_seconds()
    return TierAccess(
        why_not=f"offload is when-full, after {seconds:g} s of waiting",
        change="wait: it is offloaded soon",
        waits=True,
    )


def offload_at(situation: Situation, now: datetime) -> datetime | None:
    """When a waiting workload may use higher tiers. None: this does not depend on time."""
    workload = situation.workload
    if workload.rules.offload is not Offload.WHEN_FULL or not _allowed(workload).offload:
        return None
    # A time in the future comes from a leader with a wrong clock.
    return min(waits_since(situation) or now, now) + situation.offload_after


def waits_since(situation: Situation) -> datetime | None:
    """Since when it waits for capacity. None: it does not.

    A workload that is misplaced runs, and waits for another node since its rules were changed.
    """
    if situation.draining_since is not None:
        return situation.draining_since
    status, assignment = situation.workload_status, situation.assignment
    if status is not None and status.status in _WAITING:
        return status.changed_at
    has_new_rules = assignment is not None and assignment.rules != situation.workload.rules
    return situation.workload.updated_at if has_new_rules else None


def _allowed(workload: Workload) -> TierAccess:
    """The tiers that the rules allow, without the waiting time."""
    rules = workload.rules
    if HOME_CLUSTER in workload.metadata:
        return _LOOP
    if rules.offload is Offload.NEVER:
        return HOME_ONLY
    if holds_data(workload) and not rules.offload_data:
        return _DATA
    if 0 < workload.stop_after_seconds < OFFLOADED_STOP_AFTER_SECONDS_MIN:
        return _STOP_AFTER
    return _PREFERRED if rules.offload is Offload.PREFER else _ALWAYS
