"""Explains placement: the best or nearest nodes in detail, and the number of nodes per rejection reason.

Ten thousand nodes are too many to check one by one for each request: `filter_pass.py` finds which nodes fit
and which are nearest, with arrays. Only the nodes shown in detail are checked with `reject`.

`remedy` finds the smallest change that would let one node run a workload: each obstacle is removed from a
copy of the node, and the filters run again until they pass. So a suggested change does place the workload. If
no change of the node helps, the suggestion is another node.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace as changed

from persys.core.placement.constraints import holds, written
from persys.core.placement.filters import (
    Filter,
    Rejection,
    described,
    exclusive,
    reject,
    repels,
)
from persys.core.placement.index.node_index import SCANNED_MOST, Hold, NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import HOME_ONLY, Requirements, TierAccess
from persys.core.placement.score import (
    GroupProximity,
    ScorePart,
    beyond_score,
    score,
    score_parts,
)
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources

# The effort of each change for an operator. Only the order matters.
COSTS = {
    Filter.TAINT: 0.5,
    Filter.CONSTRAINT: 0.7,
    Filter.TIER: 0.9,
    Filter.HOST_PORT: 1.1,
    Filter.PROJECT: 1.1,
    Filter.ANTI_AFFINITY: 1.2,
    **dict.fromkeys((Filter.TYPE, Filter.DRIVER, Filter.POOL, Filter.FEATURE, Filter.SIZE), 8.0),
}
WAITING = 0.1  # until higher tiers are open to it
FREEING = 1.0  # plus the missing share of the requirement
ANOTHER_NODE = COSTS[Filter.TYPE]
_OPENING = {"cordoned": 0.3, "draining": 0.8}
_OPENING_OTHERWISE = 2.0  # a node that is not ready

UNITS = {Filter.CPU: "m", Filter.MEMORY: " MB", Filter.DISK: " GB"}
_AMOUNTS = {
    Filter.CPU: "cpu_millicores",
    Filter.MEMORY: "memory_mb",
    Filter.DISK: "disk_gb",
}


class Remedy(Struct, frozen=True, gc=False):
    rejection: Rejection | None  # the first; None when it fits as it is
    change: str
    cost: float


class _Step(NamedTuple):
    """One removed obstacle: the change, its cost, and the remaining requirements."""

    needs: Requirements
    cost: float
    change: str = ""
    another_node_with: tuple[str, ...] = ()


def remedy(slot: NodeSlot, needs: Requirements, node_index: NodeIndex) -> Remedy:
    first = rejection = reject(slot, needs)
    slot = slot.copy()  # hypothetical
    changes: list[str] = []
    wanted: list[str] = []
    cost = 0.0
    while rejection is not None:
        step = _without(rejection, slot, needs, node_index.holders(slot.node_id))
        needs, cost = step.needs, cost + step.cost
        if step.change:
            changes.append(step.change)
        wanted += step.another_node_with
        rejection = reject(slot, needs)
    if wanted:
        return Remedy(first, f"a node with {' and '.join(wanted)}", cost)
    return Remedy(first, " and ".join(changes), cost)


def opening_cost(slot: NodeSlot) -> float:
    return _OPENING.get(slot.closed, _OPENING_OTHERWISE)


def _without(
    rejection: Rejection, slot: NodeSlot, needs: Requirements, holders: Mapping[WorkloadId, Hold]
) -> _Step:
    """Remove the obstacle from the row, or from the requirements that it returns."""
    match rejection.filter:
        case Filter.CPU | Filter.MEMORY | Filter.DISK as kind:
            if rejection.pool:
                return _free_pool(slot, needs, rejection)
            return _free(slot, needs, kind, rejection.missing)
        case Filter.CLOSED:
            return _open(slot, needs)
        case Filter.TYPE | Filter.DRIVER | Filter.POOL | Filter.FEATURE:
            lacking = needs.traits - slot.traits
            slot.traits |= lacking
            names = tuple(described(trait) for trait in sorted(lacking))
            return _Step(needs, ANOTHER_NODE, another_node_with=names)
        case Filter.TAINT:
            taint = repels(slot.taints, needs.rules)
            slot.taints -= {taint}
            return _Step(needs, COSTS[Filter.TAINT], f"tolerate taint {taint}")
        case Filter.CONSTRAINT:
            return _relax(slot, needs)
        case Filter.TIER:
            return _offload(needs)
        case Filter.SIZE:
            return _larger_machine(slot, needs)
        case Filter.ANTI_AFFINITY:
            return _part(slot, needs, holders)
        case Filter.HOST_PORT | Filter.PROJECT:
            return _free_port(slot, needs, holders)


def _open(slot: NodeSlot, needs: Requirements) -> _Step:
    change = {
        "cordoned": f"uncordon {slot.node_id}",
        "draining": f"end the drain of {slot.node_id} with uncordon",
        "not ready": f"repair {slot.node_id}",
    }.get(slot.closed, f"open {slot.node_id}, which is {slot.closed}")
    cost = opening_cost(slot)
    slot.closed = ""
    return _Step(needs, cost, change)


def _offload(needs: Requirements) -> _Step:
    """All consents at once: whether it has data is not known here."""
    allowed = replace(needs, tiers=TierAccess(offload=True))
    if not needs.tiers.change:
        return _Step(allowed, ANOTHER_NODE, another_node_with=("capacity in tier 0",))
    return _Step(allowed, WAITING if needs.tiers.waits else COSTS[Filter.TIER], needs.tiers.change)


def _relax(slot: NodeSlot, needs: Requirements) -> _Step:
    rules = needs.rules
    broken = next(found for found in rules.constraints if not holds(found, slot.labels))
    kept = tuple(found for found in rules.constraints if found != broken)
    lenient = replace(needs, rules=changed(rules, constraints=kept))
    return _Step(lenient, COSTS[Filter.CONSTRAINT], f"relax constraint {written(broken)}")


def _part(slot: NodeSlot, needs: Requirements, holders: Mapping[WorkloadId, Hold]) -> _Step:
    group = needs.rules.group
    who = sorted(
        found for found, hold in holders.items() if any(name == group for name, _ in hold.groups)
    )
    slot.members.pop(group, None)
    slot.apart.pop(group, None)
    change = f"move {' and '.join(who)} of group {group} off {slot.node_id}"
    return _Step(needs, COSTS[Filter.ANTI_AFFINITY] * max(1, len(who)), change)


def _free_port(slot: NodeSlot, needs: Requirements, holders: Mapping[WorkloadId, Hold]) -> _Step:
    port = min(needs.host_ports & slot.ports.keys())
    who = sorted(found for found, hold in holders.items() if port in hold.host_ports)
    del slot.ports[port]
    change = f"free {port} on {slot.node_id}, used by workload {' and '.join(who)}"
    return _Step(needs, COSTS[exclusive(port)], change)


def _free(slot: NodeSlot, needs: Requirements, kind: Filter, missing: int) -> _Step:
    name = _AMOUNTS[kind]
    need, has = getattr(needs.resources, name), getattr(slot.allocatable, name)
    slot.free += Resources(**{name: missing})
    if need > has:
        amount = f"{need}{UNITS[kind]} {kind}"
        return _Step(needs, ANOTHER_NODE, another_node_with=(amount,))
    change = f"free {missing}{UNITS[kind]} {kind} on {slot.node_id}"
    return _Step(needs, FREEING + missing / max(1, need), change)


def _larger_machine(slot: NodeSlot, needs: Requirements) -> _Step:
    need, most = needs.resources, slot.largest or Resources()
    slot.largest = None
    amounts = tuple(
        f"{wanted}{UNITS[kind]} {kind} on one machine"
        for kind, wanted, has in (
            (Filter.CPU, need.cpu_millicores, most.cpu_millicores),
            (Filter.MEMORY, need.memory_mb, most.memory_mb),
            (Filter.DISK, need.disk_gb, most.disk_gb),
        )
        if has and wanted > has
    )
    return _Step(needs, ANOTHER_NODE, another_node_with=amounts)


def _free_pool(slot: NodeSlot, needs: Requirements, short: Rejection) -> _Step:
    assert slot.pools is not None, "only a node with several is short of one"
    slot.pools.free_gb[short.pool] = slot.pools.free_gb.get(short.pool, 0) + short.missing
    if short.needed > slot.pools.accounts.total_gb.get(short.pool, 0):
        amount = f"{short.needed} GB disk in pool {short.pool}"
        return _Step(needs, ANOTHER_NODE, another_node_with=(amount,))
    change = f"free {short.missing} GB disk in pool {short.pool} on {slot.node_id}"
    return _Step(needs, FREEING + short.missing / max(1, short.needed), change)


Reason = tuple[Filter, str]

CHANGES_MAX = 10


class Verdict(Struct, frozen=True, gc=False):
    node_id: NodeId
    rejection: Rejection | None
    change: str  # "" when it fits
    cost: float
    score: tuple[ScorePart, ...] = ()
    tier: int = 0
    price: float = 0.0


@dataclass(frozen=True, slots=True)
class Explanation:
    verdicts: tuple[Verdict, ...]  # those that fit, the best first; then the nearest misses
    counts: dict[Reason, int]  # of all rejected nodes
    node_count: int

    @property
    def fit_count(self) -> int:
        return self.node_count - sum(self.counts.values())

    def changes(self) -> tuple[str, ...]:
        """Changes that would place it, the smallest first, without duplicates."""
        by_cost = sorted(self.verdicts, key=lambda found: (found.cost, found.node_id))
        return tuple(dict.fromkeys(v.change for v in by_cost if v.change))[:CHANGES_MAX]

    def refusals(self) -> str:
        """'2 nodes cordoned; 1 node short of cpu'."""
        if not self.node_count:
            return "the cluster has no nodes"
        return "; ".join(
            f"{count} node{'s' if count > 1 else ''} {detail}"
            for (_, detail), count in sorted(
                self.counts.items(), key=lambda item: (-item[1], item[0])
            )
        )


def explain(needs: Requirements, node_index: NodeIndex, *, limit: int) -> Explanation:
    """`limit`: how many nodes are shown in detail."""
    if not node_index.slots:
        return Explanation((), {}, 0)
    found = _judged(needs, node_index, limit)
    proximity = GroupProximity(needs, node_index)
    fits = [
        Verdict(
            slot.node_id,
            None,
            "",
            0.0,
            tuple(score_parts(slot, needs, node_index, proximity)),
            slot.tier,
            slot.price,
        )
        for slot in found.best
    ]
    misses = [
        Verdict(slot.node_id, cure.rejection, cure.change, cure.cost, (), slot.tier, slot.price)
        for slot in found.nearest
        if (cure := remedy(slot, needs, node_index))
    ]
    misses.sort(key=lambda verdict: (verdict.cost, _shortage(verdict.rejection), verdict.node_id))
    return Explanation((*fits, *misses)[:limit], dict(found.counts), len(node_index.slots))


def _shortage(rejection: Rejection | None) -> float:
    """The missing share of the needed amount: of nodes that are all too small, the largest is first."""
    return rejection.missing / max(1, rejection.needed) if rejection is not None else 0.0


def refusals_in_tier_0(needs: Requirements, node_index: NodeIndex) -> str:
    """Why no node of tier 0 fits: '2 nodes cordoned; 1 node short of cpu'."""
    home = replace(needs, tiers=HOME_ONLY)
    counts = _judged(home, node_index, 0).counts
    for slot in node_index.beyond.values():
        rejection = reject(slot, home)
        assert rejection is not None
        counts[rejection.filter, rejection.detail] -= 1
    node_count = len(node_index.slots) - len(node_index.beyond)
    return Explanation((), dict(+counts), node_count).refusals() if node_count else "no nodes"


@dataclass(frozen=True, slots=True)
class _Judged:
    """All nodes: the best that fit, candidates for the nearest misses, and the rejected by reason."""

    best: list[NodeSlot]
    nearest: list[NodeSlot]
    counts: Counter[Reason]


def _judged(needs: Requirements, node_index: NodeIndex, limit: int) -> _Judged:
    if len(node_index.slots) <= SCANNED_MOST:
        return _judged_one_by_one(needs, node_index, limit)
    # A slow import: of numpy, which a small cluster does not need.
    from persys.core.placement.filter_pass import FilterPass, best_at_home

    filter_pass = FilterPass(needs, node_index)
    proximity = GroupProximity(needs, node_index)
    home = best_at_home(filter_pass, proximity, limit)
    best = _best(home, filter_pass.fit_beyond, needs, node_index, limit)
    nearest = list(filter_pass.nearest(limit - len(best)))
    return _Judged(best, nearest, filter_pass.counts)


def _judged_one_by_one(needs: Requirements, node_index: NodeIndex, limit: int) -> _Judged:
    counts: Counter[Reason] = Counter()
    home: list[NodeSlot] = []
    beyond: list[NodeSlot] = []
    rejected: list[NodeSlot] = []
    for slot in node_index.slots.values():
        rejection = reject(slot, needs)
        if rejection is None:
            (beyond if slot.tier else home).append(slot)
        else:
            counts[rejection.filter, rejection.detail] += 1
            rejected.append(slot)
    proximity = GroupProximity(needs, node_index)
    home.sort(key=lambda slot: score(slot, needs, node_index, proximity))
    best = _best(home, beyond, needs, node_index, limit)
    return _Judged(best, rejected, counts)


def _best(
    home: list[NodeSlot],
    fit_beyond: list[NodeSlot],
    needs: Requirements,
    node_index: NodeIndex,
    limit: int,
) -> list[NodeSlot]:
    """The nodes that fit, in the order of placement. `home`: those of tier 0, in order."""
    proximity = GroupProximity(needs, node_index)
    beyond = nsmallest(
        limit, fit_beyond, key=lambda slot: beyond_score(slot, needs, node_index, proximity)
    )
    return ([*beyond, *home] if needs.tiers.preferred else [*home, *beyond])[:limit]
