"""Chooses a node: of those that no filter rejects, the one with the lowest score.

Three ways give the same result. A few nodes are checked one by one. Of many, one of the first in order nearly
always fits; otherwise all nodes are searched with arrays.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from persys.core.placement.filters import Filter, Rejection, reject
from persys.core.placement.index.node_index import SCANNED_MOST, NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.index.ranking import TooFarError
from persys.core.placement.requirements import Requirements
from persys.core.placement.score import (
    GroupProximity,
    beyond_score,
    price_of,
    score,
    strategy_of,
)
from persys.model.ids import NodeId
from persys.model.placement import Operator, Strategy

REFUSALS_KEPT = 8  # each has an entry for every node
_UNIT = {Filter.CPU: "m", Filter.MEMORY: " MB", Filter.DISK: " GB"}


@dataclass(frozen=True, slots=True)
class Placed:
    node_id: NodeId
    why: str


@dataclass(frozen=True)
class Unplaceable:
    """No node fits, with the reason for each node."""

    rejections: Mapping[NodeId, Rejection]
    needs: Requirements

    def explain(self) -> str:
        """'2 nodes not ready; 1 node short of cpu (needs 4000m, n2 lacks 500m)'."""
        return self._explanation

    @cached_property
    def _explanation(self) -> str:
        """Computed once: many workloads with equal requirements may share it."""
        if not self.rejections:
            return "the cluster has no nodes"
        counts: Counter[str] = Counter()
        nearest: dict[str, tuple[int, NodeId]] = {}
        for node_id, rejection in self.rejections.items():
            detail, missing = rejection.detail, (rejection.missing, node_id)
            counts[detail] += 1
            if detail not in nearest or missing < nearest[detail]:
                nearest[detail] = missing
        return "; ".join(
            f"{count} node{'s' if count > 1 else ''} {detail}{self._lacks(nearest[detail][1])}"
            for detail, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )

    def _lacks(self, node_id: NodeId) -> str:
        rejection = self.rejections[node_id]
        if not rejection.missing:
            return ""
        unit = _UNIT[rejection.filter]
        amount = rejection.needed or self._amount(rejection.filter)
        return f" (needs {amount}{unit}, {node_id} lacks {rejection.missing}{unit})"

    def _amount(self, kind: Filter) -> int:
        match kind:
            case Filter.CPU:
                return self.needs.resources.cpu_millicores
            case Filter.MEMORY:
                return self.needs.resources.memory_mb
            case Filter.DISK:
                return self.needs.resources.disk_gb
            case _:
                return 0


def place(needs: Requirements, node_index: NodeIndex) -> Placed | Unplaceable:
    best = choose(needs, node_index)
    if best is not None:
        return _placed(best, needs, node_index)
    return _nowhere(needs, node_index)


def _nowhere(needs: Requirements, node_index: NodeIndex) -> Unplaceable:
    """Cached for equal requirements until a node changes."""
    version, refusals = node_index.refused
    if version != node_index.version or len(refusals) >= REFUSALS_KEPT:
        node_index.refused = (node_index.version, refusals := {})
    found = refusals.get(needs)
    if found is None:
        rejections = {
            slot.node_id: rejection
            for slot in node_index.slots.values()
            if (rejection := reject(slot, needs))
        }
        found = refusals[needs] = Unplaceable(rejections, needs)
    assert isinstance(found, Unplaceable)
    return found


def choose(needs: Requirements, node_index: NodeIndex) -> NodeSlot | None:
    """The node that `place` chooses, without the reasons for the others."""
    if not node_index.beyond or not needs.tiers.offload:
        return _choose_at_home(needs, node_index)
    if needs.tiers.preferred:
        return _choose_beyond(needs, node_index) or _choose_at_home(needs, node_index)
    return _choose_at_home(needs, node_index) or _choose_beyond(needs, node_index)


def _choose_beyond(needs: Requirements, node_index: NodeIndex) -> NodeSlot | None:
    """The cheapest node that fits, of the lowest tier that has one."""
    proximity = GroupProximity(needs, node_index)
    return min(
        (slot for slot in node_index.beyond.values() if reject(slot, needs) is None),
        key=lambda slot: beyond_score(slot, needs, node_index, proximity),
        default=None,
    )


def _choose_at_home(needs: Requirements, node_index: NodeIndex) -> NodeSlot | None:
    pinned = _pinned(needs, node_index)
    if pinned is not None or len(node_index.slots) <= SCANNED_MOST:
        slots = node_index.slots.values() if pinned is None else pinned
        fitting = [slot for slot in slots if not slot.tier and reject(slot, needs) is None]
        proximity = GroupProximity(needs, node_index)
        return min(
            fitting, key=lambda slot: score(slot, needs, node_index, proximity), default=None
        )
    # A slow import: of numpy, which a small cluster does not need.
    from persys.core.placement.search import ordered_search, vector_search

    try:
        return ordered_search(needs, node_index)
    except TooFarError:
        return vector_search(needs, node_index)


def _pinned(needs: Requirements, node_index: NodeIndex) -> list[NodeSlot] | None:
    """The nodes that a constraint on node.id names; None: no such constraint."""
    for constraint in needs.rules.constraints:
        if constraint.key == "node.id" and constraint.operator in (Operator.EQUALS, Operator.IN):
            named = {NodeId(value) for value in constraint.values}
            return [node_index.slots[node_id] for node_id in named if node_id in node_index.slots]
    return None


def _placed(slot: NodeSlot, needs: Requirements, node_index: NodeIndex) -> Placed:
    if slot.tier:
        how = "offloaded as preferred" if needs.tiers.preferred else "offloaded"
        return Placed(slot.node_id, f"{how}: cheapest of tier {slot.tier}, {price_of(slot)}")
    if len(node_index.slots) == 1:
        among = "the only node"
    elif strategy_of(needs, node_index) is Strategy.BINPACK:
        among = f"highest utilisation that fits of {len(node_index.slots)} nodes"
    else:
        among = f"lowest utilisation of {len(node_index.slots)} nodes"
    why = f"{among}: {slot.rank[0]:.0%} reserved, workloads: {slot.count}"
    if needs.rules.group:
        why = f"fewest members of group {needs.rules.group}, then {why}"
    return Placed(slot.node_id, why)
