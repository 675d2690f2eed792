"""The filters over all nodes at once, with arrays, for `explain`.

Arrays show which nodes fit, which filter rejects the others first, and which are nearest. One node of each
counted kind is checked with `reject`. Only clusters with many nodes import this module.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from persys.core.placement.constraints import holds_for
from persys.core.placement.explain import COSTS, FREEING, Reason, opening_cost
from persys.core.placement.filters import Filter, exclusive, oversized, reject, repels
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import GroupProximity, score, strategy_of
from persys.core.placement.search import eligible
from persys.model.placement import Strategy

Mask = NDArray[np.bool_]
# float32 halves the memory: small allocations are reused and need no fresh pages.
Costs = NDArray[np.float32]
FloatsT = TypeVar("FloatsT", NDArray[np.float32], NDArray[np.float64])
SAMPLED = 1024
Cost = Callable[[], Costs] | float  # per node, or the same for all rejected nodes


class FilterPass:
    """Runs all filters over all nodes, in the order of `reject`."""

    def __init__(self, needs: Requirements, node_index: NodeIndex) -> None:
        self.needs = needs
        self.node_index = node_index
        self.counts: Counter[Reason] = Counter()
        self.fits: Mask = node_index.all_nodes.arrays.open.copy()  # of tier 0
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
            far = _smallest(distance, limit)
            nearest = np.flatnonzero(distance <= far)[:limit]
        else:
            nearest = np.arange(len(distance))
        found = nearest[np.isfinite(distance[nearest])]
        return (self.node_index.at(int(position)) for position in found)

    def _distances(self) -> Costs:
        """The approximate cost of the changes; infinite where there is no node."""
        distance = np.where(
            self.node_index.all_nodes.arrays.open, np.float32(0), np.float32(np.inf)
        )
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
        able = node_index.all_nodes.traits.where(wanted, wanted.issubset)
        if not able.all():
            self._refuse(~able, COSTS[Filter.TYPE], alike=node_index.all_nodes.traits.codes)
        if node_index.tainted:
            tolerates = node_index.all_nodes.taints.where(
                rules.tolerations, lambda found: not repels(found, rules)
            )
            self._refuse(~tolerates, COSTS[Filter.TAINT], alike=node_index.all_nodes.taints.codes)
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
        need, arrays = self.needs.resources, self.node_index.all_nodes.arrays
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


def _smallest(values: FloatsT, count: int) -> float:
    """The largest of the `count` smallest values."""
    # Of a sample it is at least as large: with this bound, a few hundred values are left to be sorted.
    sample = values[:: max(1, len(values) // SAMPLED)]
    if count <= len(sample):
        values = values[values <= np.partition(sample, count - 1)[count - 1]]
    return float(np.partition(values, count - 1)[count - 1])


def _freeing(wanted: int, free: NDArray[np.int64]) -> Costs:
    lacking: Costs = np.subtract(wanted, free, dtype=np.float32, casting="unsafe")
    np.maximum(lacking, 0, out=lacking)
    lacking /= max(1, wanted)
    np.add(lacking, FREEING, out=lacking, where=lacking > 0)
    return lacking


def best_at_home(filter_pass: FilterPass, proximity: GroupProximity, limit: int) -> list[NodeSlot]:
    needs, node_index = filter_pass.needs, filter_pass.node_index
    fitting = np.flatnonzero(filter_pass.fits)
    in_order = not needs.rules.group and strategy_of(needs, node_index) is Strategy.SPREAD
    if in_order and 0 < limit < len(fitting):
        full = node_index.all_nodes.arrays.full[fitting]
        fitting = fitting[full <= _smallest(full, limit)]
        if len(fitting) > 4 * limit:
            # Many have equal utilisation, as in a new cluster: they are adjacent in the ordered list.
            begin = bisect_left(node_index.order.ranks, (full.min(),))
            ranks = islice(node_index.order.ranks, begin, None)
            in_turn = (node_index.slots[node_id] for _, _, node_id in ranks)
            fits = filter_pass.fits.tobytes()  # one at a time, numpy is slow
            return list(islice((slot for slot in in_turn if fits[slot.position]), limit))
    slots = (node_index.at(int(position)) for position in fitting)
    return nsmallest(limit, slots, key=lambda slot: score(slot, needs, node_index, proximity))
