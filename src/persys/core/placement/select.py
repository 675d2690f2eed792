"""Choose a node: the emptiest that fits; equal ones fall to the fewer workloads, then to the lower id.

The walk through the first few nodes in order gives the same answer as a search through all, because the
order is the score; the search exists for the cases where the first few do not fit.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from persys.core.placement.columns import Columns
from persys.core.placement.filters import Filter, Rejection, reject
from persys.core.placement.needs import Needs
from persys.core.placement.row import Row
from persys.core.placement.score import score, strategy_of
from persys.model.ids import NodeId
from persys.model.rules import Strategy

WALKED_FIRST = 16
_UNIT = {Filter.CPU: "m", Filter.MEMORY: " MB", Filter.DISK: " GB"}


@dataclass(frozen=True, slots=True)
class Placed:
    node_id: NodeId
    why: str


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """No node fits; for every one of them the reason."""

    rejections: Mapping[NodeId, Rejection]
    needs: Needs

    def explain(self) -> str:
        """'2 nodes not ready; 1 node short of cpu (needs 4000m, n2 lacks 500m)'."""
        if not self.rejections:
            return "there is no node"
        counts = Counter(rejection.detail for rejection in self.rejections.values())
        return "; ".join(
            f"{count} node{'s' if count > 1 else ''} {detail}{self._nearest(detail)}"
            for detail, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )

    def _nearest(self, detail: str) -> str:
        missing, node_id, kind = min(
            (rejection.missing, node_id, rejection.filter)
            for node_id, rejection in self.rejections.items()
            if rejection.detail == detail
        )
        if not missing:
            return ""
        unit = _UNIT[kind]
        return f" (needs {self._amount(kind)}{unit}, {node_id} lacks {missing}{unit})"

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
        return _placed(best, columns)
    return Unplaceable(
        {
            row.node_id: rejection
            for row in columns.rows.values()
            if (rejection := reject(row, needs))
        },
        needs,
    )


def choose(needs: Needs, columns: Columns) -> Row | None:
    """The node that `place` chooses, without a word about the others."""
    if needs.rules.group or strategy_of(needs, columns) is Strategy.BINPACK:
        fitting = [row for row in columns.rows.values() if reject(row, needs) is None]
        return min(fitting, key=lambda row: score(row, needs, columns), default=None)
    for row in islice(columns.in_order(), WALKED_FIRST):
        if reject(row, needs) is None:
            return row
    return _search(needs, columns) if len(columns.rows) > WALKED_FIRST else None


def _search(needs: Needs, columns: Columns) -> Row | None:
    bits = columns.bits_of(needs.traits)
    fits = (
        columns.open
        & ((columns.traits & bits) == bits)
        & (columns.free_cpu >= needs.resources.cpu_millicores)
        & (columns.free_memory >= needs.resources.memory_mb)
        & (columns.free_disk >= needs.resources.disk_gb)
    )
    candidates = np.flatnonzero(fits)
    # Bits of rare traits may be shared and ports are not in the columns, so the filter has the last word.
    for position in candidates[np.argsort(columns.full[candidates], kind="stable")]:
        row = columns.at(int(position))
        if reject(row, needs) is None:
            return min(
                (
                    other
                    for place in candidates[columns.full[candidates] == row.rank[0]]
                    if reject(other := columns.at(int(place)), needs) is None
                ),
                key=lambda other: other.rank,
            )
    return None


def _placed(row: Row, columns: Columns) -> Placed:
    among = f"emptiest of {len(columns.rows)} nodes" if len(columns.rows) > 1 else "the only node"
    return Placed(row.node_id, f"{among}: {row.rank[0]:.0%} reserved, workloads: {row.count}")
