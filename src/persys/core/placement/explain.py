"""Explains placement: the best or nearest nodes in detail, and the number of nodes per rejection reason.

Ten thousand nodes are too many to check one by one for each request. So arrays show which nodes fit, which
filter rejects the others first and which are nearest. Only the nodes shown in detail, and one of each counted
kind, are checked with `reject`.

`remedy` finds the smallest change that would let one node run a workload: each obstacle is removed from a
copy of the node, and the filters run again until they pass. So a suggested change does place the workload. If
no change of the node helps, the suggestion is another node.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace as changed
from numpy.typing import NDArray

from persys.core.placement.constraints import holds, holds_for, written
from persys.core.placement.filters import (
    Filter,
    Rejection,
    described,
    exclusive,
    oversized,
    reject,
    repels,
)
from persys.core.placement.index.node_index import Hold, NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import HOME_ONLY, Requirements, TierAccess
from persys.core.placement.score import (
    GroupProximity,
    ScorePart,
    beyond_score,
    score,
    score_parts,
    strategy_of,
)
from persys.core.placement.search import eligible
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources, Strategy

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


@dataclass(frozen=True, slots=True)
class Remedy:
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


Mask = NDArray[np.bool_]
Reason = tuple[Filter, str]
# float32 halves the memory: small allocations are reused and need no fresh pages.
Costs = NDArray[np.float32]
Cost = Callable[[], Costs] | float  # per node, or the same for all rejected nodes

CHANGES_MAX = 10


@dataclass(frozen=True, slots=True)
class Verdict:
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
    filter_pass = _FilterPass(needs, node_index)
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
        for slot in _best(filter_pass, proximity, limit)
    ]
    misses = [
        Verdict(slot.node_id, found.rejection, found.change, found.cost, (), slot.tier, slot.price)
        for slot in filter_pass.nearest(limit - len(fits))
        if (found := remedy(slot, needs, node_index))
    ]
    misses.sort(key=lambda found: (found.cost, found.node_id))
    return Explanation((*fits, *misses), dict(filter_pass.counts), len(node_index.slots))


def refusals_in_tier_0(needs: Requirements, node_index: NodeIndex) -> str:
    """Why no node of tier 0 fits: '2 nodes cordoned; 1 node short of cpu'."""
    home = replace(needs, tiers=HOME_ONLY)
    counts = _FilterPass(home, node_index).counts
    for slot in node_index.beyond.values():
        rejection = reject(slot, home)
        assert rejection is not None
        counts[rejection.filter, rejection.detail] -= 1
    node_count = len(node_index.slots) - len(node_index.beyond)
    return Explanation((), dict(+counts), node_count).refusals() if node_count else "no nodes"


class _FilterPass:
    """Runs all filters over all nodes, in the order of `reject`."""

    def __init__(self, needs: Requirements, node_index: NodeIndex) -> None:
        self.needs = needs
        self.node_index = node_index
        self.counts: Counter[Reason] = Counter()
        self.fits: Mask = node_index.arrays.open.copy()  # of tier 0
        self.fit_beyond: list[NodeSlot] = []  # of higher tiers
        self._obstacles: list[tuple[Mask, Cost]] = []  # rejected nodes, and the cost of a change
        self._some_closed = np.count_nonzero(self.fits) < len(node_index.slots)
        self._refuse_closed()
        self._refuse_unfit()
        self._refuse_crowded()
        self._refuse_short()
        self._judge_higher_tiers()

    def nearest(self, limit: int) -> Iterator[NodeSlot]:
        if limit <= 0:
            return iter(())
        distance = self._distances()
        distance[self.fits] = np.inf
        distance[[slot.position for slot in self.fit_beyond]] = np.inf
        if limit < len(distance):
            far = np.partition(distance, limit - 1)[limit - 1]
            nearest = np.flatnonzero(distance <= far)[:limit]
        else:
            nearest = np.arange(len(distance))
        found = nearest[np.isfinite(distance[nearest])]
        return (self.node_index.at(int(position)) for position in found)

    def _distances(self) -> Costs:
        """The approximate cost of the changes; infinite where there is no node."""
        distance = np.where(self.node_index.arrays.open, np.float32(0), np.float32(np.inf))
        if self._some_closed:
            for slot in self.node_index.slots.values():
                if slot.closed:
                    distance[slot.position] = opening_cost(slot)
                elif slot.tier:
                    distance[slot.position] = COSTS[Filter.TIER]
        for refused, cost in self._obstacles:
            distance += cost() if callable(cost) else refused * np.float32(cost)
        return distance

    def _refuse_closed(self) -> None:
        if not self._some_closed:
            return
        for slot in self.node_index.slots.values():
            if slot.closed:
                self.counts[Filter.CLOSED, slot.closed] += 1

    def _judge_higher_tiers(self) -> None:
        """There are few, and they are not in the arrays."""
        for slot in self.node_index.beyond.values():
            if slot.closed:
                continue  # counted with the closed nodes of tier 0
            rejection = reject(slot, self.needs)
            if rejection is None:
                self.fit_beyond.append(slot)
            else:
                self.counts[rejection.filter, rejection.detail] += 1

    def _refuse_unfit(self) -> None:
        node_index, wanted, rules = self.node_index, self.needs.traits, self.needs.rules
        if eligible(self.needs, node_index).mask.all():
            return
        able = node_index.traits.where(wanted, wanted.issubset)
        if not able.all():
            self._refuse(~able, COSTS[Filter.TYPE], alike=node_index.traits.codes)
        if node_index.tainted:
            tolerates = node_index.taints.where(
                rules.tolerations, lambda found: not repels(found, rules)
            )
            self._refuse(~tolerates, COSTS[Filter.TAINT], alike=node_index.taints.codes)
        for constraint in rules.constraints:
            labels = node_index.labelled(constraint.key)
            meets = labels.where(constraint, partial(holds_for, constraint))
            self._refuse(~meets, COSTS[Filter.CONSTRAINT])

    def _refuse_crowded(self) -> None:
        node_index, rules = self.node_index, self.needs.rules
        proximity = node_index.groups.rows_of(rules.group).values()
        apart = (slot for slot in proximity if rules.apart or rules.group in slot.apart)
        if rules.group:
            self._refuse(self._mask_of(apart), COSTS[Filter.ANTI_AFFINITY])
        for port in sorted(self.needs.host_ports):
            taken = node_index.port_holders.get(port, {}).values()
            self._refuse(self._mask_of(taken), COSTS[exclusive(port)])

    def _refuse_short(self) -> None:
        need, arrays = self.needs.resources, self.node_index.arrays
        for slot in self.node_index.limited.values():
            if slot.largest is not None and oversized(slot.largest, need):
                self._refuse(self._mask_of((slot,)), COSTS[Filter.SIZE])
        for wanted, free in (
            (need.cpu_millicores, arrays.cpu),
            (need.memory_mb, arrays.memory),
            (need.disk_gb, arrays.disk),
        ):
            short = free < wanted
            if short.any():
                self._refuse(short, partial(_freeing, wanted, free))
        self._refuse_short_of_pools()

    def _refuse_short_of_pools(self) -> None:
        short: dict[str, list[NodeSlot]] = {}
        for slot in self.node_index.pooled.values():
            assert slot.pools is not None
            found = slot.pools.short_of(self.needs.resources.disk_gb, self.needs.pools)
            if found is not None:
                short.setdefault(found.pool, []).append(slot)
        for slots in short.values():
            self._refuse(self._mask_of(slots), FREEING)

    def _refuse(
        self,
        refused: Mask,
        cost: Cost,
        *,
        alike: NDArray[np.int32] | None = None,
    ) -> None:
        """`alike`: numbers that are equal for equal reasons; None: one reason for all."""
        self._obstacles.append((refused, cost))
        rejected_rows = np.flatnonzero(refused & self.fits)
        self.fits &= ~refused
        if not rejected_rows.size:
            return
        if alike is None:
            self._count(rejected_rows[0], len(rejected_rows))
            return
        kinds = alike[rejected_rows]
        for kind, count in enumerate(np.bincount(kinds)):
            if count:
                self._count(rejected_rows[np.argmax(kinds == kind)], count)

    def _count(self, one: np.intp, count: int | np.intp) -> None:
        """`count` nodes are rejected for the same reason as this one."""
        rejection = reject(self.node_index.at(int(one)), self.needs)
        assert rejection is not None
        self.counts[rejection.filter, rejection.detail] += int(count)

    def _mask_of(self, slots: Iterable[NodeSlot]) -> Mask:
        mask = np.zeros_like(self.fits)
        mask[[slot.position for slot in slots]] = True
        return mask


def _freeing(wanted: int, free: NDArray[np.int64]) -> Costs:
    lacking: Costs = np.subtract(wanted, free, dtype=np.float32, casting="unsafe")
    np.maximum(lacking, 0, out=lacking)
    lacking /= max(1, wanted)
    np.add(lacking, FREEING, out=lacking, where=lacking > 0)
    return lacking


def _best(filter_pass: _FilterPass, proximity: GroupProximity, limit: int) -> list[NodeSlot]:
    """The nodes that fit, in the order of placement."""
    needs, node_index = filter_pass.needs, filter_pass.node_index
    home = _best_at_home(filter_pass, proximity, limit)
    beyond = nsmallest(
        limit,
        filter_pass.fit_beyond,
        key=lambda slot: beyond_score(slot, needs, node_index, proximity),
    )
    return ([*beyond, *home] if needs.tiers.preferred else [*home, *beyond])[:limit]


def _best_at_home(
    filter_pass: _FilterPass, proximity: GroupProximity, limit: int
) -> list[NodeSlot]:
    needs, node_index = filter_pass.needs, filter_pass.node_index
    fitting = np.flatnonzero(filter_pass.fits)
    in_order = not needs.rules.group and strategy_of(needs, node_index) is Strategy.SPREAD
    if in_order and 0 < limit < len(fitting):
        full = node_index.arrays.full[fitting]
        fitting = fitting[full <= np.partition(full, limit - 1)[limit - 1]]
        if len(fitting) > 4 * limit:
            # Many have equal utilisation, as in a new cluster: they are adjacent in the ordered list.
            begin = bisect_left(node_index.order.ranks, (full.min(),))
            ranks = islice(node_index.order.ranks, begin, None)
            in_turn = (node_index.slots[node_id] for _, _, node_id in ranks)
            fits = filter_pass.fits.tobytes()  # one at a time, numpy is slow
            return list(islice((slot for slot in in_turn if fits[slot.position]), limit))
    slots = (node_index.at(int(position)) for position in fitting)
    return nsmallest(limit, slots, key=lambda slot: score(slot, needs, node_index, proximity))
