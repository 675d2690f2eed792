"""Explains placement: the best or nearest nodes in detail, and the number of nodes per rejection reason.

Ten thousand nodes are too many to check one by one for each request. So arrays show which nodes fit, which
filter rejects the others first and which are nearest. Only the nodes shown in detail, and one of each counted
kind, are checked with `reject`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.constraints import holds_for
from persys.core.placement.filters import Filter, Rejection, exclusive, reject, repels
from persys.core.placement.node_index import NodeIndex
from persys.core.placement.node_slot import NodeSlot
from persys.core.placement.remedy import COSTS, FREEING, opening_cost, remedy
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import GroupProximity, ScorePart, score, score_parts, strategy_of
from persys.core.placement.vector_search import eligible
from persys.model.ids import NodeId
from persys.model.placement import Strategy

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
    sieve = _Sieve(needs, node_index)
    proximity = GroupProximity(needs, node_index)
    fits = [
        Verdict(slot.node_id, None, "", 0.0, tuple(score_parts(slot, needs, node_index, proximity)))
        for slot in _best(sieve, proximity, limit)
    ]
    misses = [
        Verdict(slot.node_id, found.rejection, found.change, found.cost)
        for slot in sieve.nearest(limit - len(fits))
        if (found := remedy(slot, needs, node_index))
    ]
    misses.sort(key=lambda found: (found.cost, found.node_id))
    return Explanation((*fits, *misses), dict(sieve.counts), len(node_index.slots))


class _Sieve:
    """Runs all filters over all nodes, in the order of `reject`."""

    def __init__(self, needs: Requirements, node_index: NodeIndex) -> None:
        self.needs = needs
        self.node_index = node_index
        self.counts: Counter[Reason] = Counter()
        self.fits: Mask = node_index.arrays.open.copy()
        self._obstacles: list[tuple[Mask, Cost]] = []  # rejected nodes, and the cost of a change
        self._some_closed = np.count_nonzero(self.fits) < len(node_index.slots)
        self._refuse_closed()
        self._refuse_unfit()
        self._refuse_crowded()
        self._refuse_short()

    def nearest(self, limit: int) -> Iterator[NodeSlot]:
        if limit <= 0:
            return iter(())
        distance = self._distances()
        distance[self.fits] = np.inf
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
        for refused, cost in self._obstacles:
            distance += cost() if callable(cost) else refused * np.float32(cost)
        return distance

    def _refuse_closed(self) -> None:
        if not self._some_closed:
            return
        for slot in self.node_index.slots.values():
            if slot.closed:
                self.counts[Filter.CLOSED, slot.closed] += 1

    def _refuse_unfit(self) -> None:
        node_index, wanted, rules = self.node_index, self.needs.traits, self.needs.rules
        if eligible(self.needs, node_index).mask.all():
            return
        able = node_index.traits.where(wanted, wanted.issubset)
        if not able.all():
            self._refuse(~able, COSTS[Filter.TYPE], alike=node_index.traits.codes)
        if node_index.tainted:
            bears = node_index.taints.where(
                rules.tolerations, lambda found: not repels(found, rules)
            )
            self._refuse(~bears, COSTS[Filter.TAINT], alike=node_index.taints.codes)
        for constraint in rules.constraints:
            said = node_index.labelled(constraint.key)
            meets = said.where(constraint, partial(holds_for, constraint))
            self._refuse(~meets, COSTS[Filter.CONSTRAINT])

    def _refuse_crowded(self) -> None:
        node_index, rules = self.node_index, self.needs.rules
        proximity = node_index.groups.rows_of(rules.group).values()
        apart = (slot for slot in proximity if rules.apart or rules.group in slot.apart)
        if rules.group:
            self._refuse(self._these(apart), COSTS[Filter.ANTI_AFFINITY])
        for port in sorted(self.needs.host_ports):
            taken = node_index.port_holders.get(port, {}).values()
            self._refuse(self._these(taken), COSTS[exclusive(port)])

    def _refuse_short(self) -> None:
        need, arrays = self.needs.resources, self.node_index.arrays
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
            self._refuse(self._these(slots), FREEING)

    def _refuse(
        self,
        refused: Mask,
        cost: Cost,
        *,
        alike: NDArray[np.int32] | None = None,
    ) -> None:
        """`alike`: numbers that are equal for equal reasons; None: one reason for all."""
        self._obstacles.append((refused, cost))
        judged = np.flatnonzero(refused & self.fits)
        self.fits &= ~refused
        if not judged.size:
            return
        if alike is None:
            self._count(judged[0], len(judged))
            return
        kinds = alike[judged]
        for kind, count in enumerate(np.bincount(kinds)):
            if count:
                self._count(judged[np.argmax(kinds == kind)], count)

    def _count(self, one: np.intp, count: int | np.intp) -> None:
        """`count` nodes are rejected for the same reason as this one."""
        rejection = reject(self.node_index.at(int(one)), self.needs)
        assert rejection is not None
        self.counts[rejection.filter, rejection.detail] += int(count)

    def _these(self, slots: Iterable[NodeSlot]) -> Mask:
        mask = np.zeros_like(self.fits)
        mask[[slot.position for slot in slots]] = True
        return mask


def _freeing(wanted: int, free: NDArray[np.int64]) -> Costs:
    lacking: Costs = np.subtract(wanted, free, dtype=np.float32, casting="unsafe")
    np.maximum(lacking, 0, out=lacking)
    lacking /= max(1, wanted)
    np.add(lacking, FREEING, out=lacking, where=lacking > 0)
    return lacking


def _best(sieve: _Sieve, proximity: GroupProximity, limit: int) -> list[NodeSlot]:
    """The nodes that fit, in the order of placement."""
    needs, node_index = sieve.needs, sieve.node_index
    fitting = np.flatnonzero(sieve.fits)
    in_order = not needs.rules.group and strategy_of(needs, node_index) is Strategy.SPREAD
    if in_order and 0 < limit < len(fitting):
        full = node_index.arrays.full[fitting]
        fitting = fitting[full <= np.partition(full, limit - 1)[limit - 1]]
        if len(fitting) > 4 * limit:
            # Many have equal utilisation, as in a new cluster: they are adjacent in the ordered list.
            begin = bisect_left(node_index.order.ranks, (full.min(),))
            ranks = islice(node_index.order.ranks, begin, None)
            in_turn = (node_index.slots[node_id] for _, _, node_id in ranks)
            fits = sieve.fits.tobytes()  # one at a time, numpy is slow
            return list(islice((slot for slot in in_turn if fits[slot.position]), limit))
    slots = (node_index.at(int(position)) for position in fitting)
    return nsmallest(limit, slots, key=lambda slot: score(slot, needs, node_index, proximity))
