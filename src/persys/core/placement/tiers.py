"""Decides when a workload may use nodes of tiers above 0, such as federated clusters.

Nothing leaves tier 0 unless its rules allow it, and a workload with data needs a second consent. With
`when-full` it first waits for capacity in tier 0.
"""

from datetime import datetime

from persys.core.placement.requirements import (
    HOME_ONLY,
    Requirements,
    TierAccess,
    holds_data,
    requirements_of,
)
from persys.core.reconcile.situation import Situation
from persys.model.placement import Offload
from persys.model.status import Status

_DATA = TierAccess(why_not="it has data, and offload_data is not set")
_ALWAYS = TierAccess(offload=True)
_PREFERRED = TierAccess(offload=True, preferred=True)


def placement_needs(situation: Situation, now: datetime) -> Requirements:
    """The requirements of the workload, with the tiers that it may use now."""
    return requirements_of(situation.workload, tier_access(situation, now))


def tier_access(situation: Situation, now: datetime) -> TierAccess:
    rules = situation.workload.rules
    if rules.offload is Offload.NEVER:
        return HOME_ONLY
    if holds_data(situation.workload) and not rules.offload_data:
        return _DATA
    if rules.offload is Offload.PREFER:
        return _PREFERRED
    opens_at = offload_at(situation, now)
    if opens_at is None or now >= opens_at:
        return _ALWAYS
    seconds = situation.offload_after.total_seconds()
    return TierAccess(why_not=f"offload is when-full, after {seconds:g} s of waiting", waits=True)


def offload_at(situation: Situation, now: datetime) -> datetime | None:
    """When a waiting workload may use higher tiers. None: this does not depend on time."""
    rules, status = situation.workload.rules, situation.workload_status
    if rules.offload is not Offload.WHEN_FULL:
        return None
    if holds_data(situation.workload) and not rules.offload_data:
        return None
    waits = status is not None and status.status is Status.PENDING
    since = status.changed_at if waits and status is not None else now
    return since + situation.offload_after
