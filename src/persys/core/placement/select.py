"""Chooses a node: of those that no filter rejects, the one with the lowest score.

Three ways give the same result. A few nodes are checked one by one. Of many, one of the first in order nearly
always fits; otherwise all nodes are searched with arrays.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from persys.core.placement.chunked_order import TooFarError
from persys.core.placement.filters import Filter, Rejection, reject
from persys.core.placement.node_index import Columns
from persys.core.placement.node_slot import Row
from persys.core.placement.ordered_search import walk
from persys.core.placement.requirements import Needs
from persys.core.placement.score import Company, score, strategy_of
from persys.core.placement.vector_search import search
from persys.model.ids import NodeId
from persys.model.placement import Operator, Strategy

SCANNED_MOST = 16
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
    needs: Needs

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


def place(needs: Needs, columns: Columns) -> Placed | Unplaceable:
    best = choose(needs, columns)
    if best is not None:
        return _placed(best, needs, columns)
    return _nowhere(needs, columns)


def _nowhere(needs: Needs, columns: Columns) -> Unplaceable:
    """Cached for equal requirements until a node changes."""
    version, told = columns.refused
    if version != columns.version or len(told) >= REFUSALS_KEPT:
        columns.refused = (columns.version, told := {})
    found = told.get(needs)
    if found is None:
        rejections = {
            row.node_id: rejection
            for row in columns.rows.values()
            if (rejection := reject(row, needs))
        }
        found = told[needs] = Unplaceable(rejections, needs)
    assert isinstance(found, Unplaceable)
    return found


def choose(needs: Needs, columns: Columns) -> Row | None:
    """The node that `place` chooses, without the reasons for the others."""
    pinned = _pinned(needs, columns)
    if pinned is not None or len(columns.rows) <= SCANNED_MOST:
        rows = columns.rows.values() if pinned is None else pinned
        fitting = [row for row in rows if reject(row, needs) is None]
        company = Company(needs, columns)
        return min(fitting, key=lambda row: score(row, needs, columns, company), default=None)
    try:
        return walk(needs, columns)
    except TooFarError:
        return search(needs, columns)


def _pinned(needs: Needs, columns: Columns) -> list[Row] | None:
    """The nodes that a constraint on node.id names; None: no such constraint."""
    for constraint in needs.rules.constraints:
        if constraint.key == "node.id" and constraint.operator in (Operator.EQUALS, Operator.IN):
            named = {NodeId(value) for value in constraint.values}
            return [columns.rows[node_id] for node_id in named if node_id in columns.rows]
    return None


def _placed(row: Row, needs: Needs, columns: Columns) -> Placed:
    if len(columns.rows) == 1:
        among = "the only node"
    elif strategy_of(needs, columns) is Strategy.BINPACK:
        among = f"highest utilisation that fits of {len(columns.rows)} nodes"
    else:
        among = f"lowest utilisation of {len(columns.rows)} nodes"
    why = f"{among}: {row.rank[0]:.0%} reserved, workloads: {row.count}"
    if needs.rules.group:
        why = f"fewest members of group {needs.rules.group}, then {why}"
    return Placed(row.node_id, why)
