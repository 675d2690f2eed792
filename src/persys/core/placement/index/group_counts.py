"""Members of placement groups, counted per node and per label over which the group is spread."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from persys.core.placement.index.node_slot import NodeSlot
from persys.model.ids import NodeId

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KeyT = TypeVar("KeyT")

LARGE = 64  # nodes

Tally = dict[str | None, int]  # value of a label (None: missing): number of group members there


class GroupCounts:
    def __init__(self) -> None:
        self._rows: dict[str, dict[NodeId, NodeSlot]] = {}
        # A label is counted from the first request until the group is gone.
        self._tallies: dict[str, dict[str, Tally]] = {}
        self._apart: dict[str, int] = {}
        self._columns: dict[str, NDArray[np.int64]] = {}

    def copy(self, slots: Mapping[NodeId, NodeSlot]) -> "GroupCounts":
        """The same counts over copied slots."""
        twin = GroupCounts()
        twin._rows = {
            group: {node_id: slots[node_id] for node_id in held}
            for group, held in self._rows.items()
        }
        twin._tallies = {
            group: {key: tally.copy() for key, tally in tallies.items()}
            for group, tallies in self._tallies.items()
        }
        twin._apart = self._apart.copy()
        return twin

    def rows_of(self, group: str) -> Mapping[NodeId, NodeSlot]:
        """The nodes with at least one member of the group."""
        return self._rows.get(group, {})

    def has_apart(self, group: str) -> bool:
        """Whether a member of the group requires anti-affinity."""
        return group in self._apart

    def by_position(self, group: str, size: int) -> "NDArray[np.int64]":
        """The number of group members per node. Cached and updated for groups on many nodes."""
        import numpy as np  # a slow import, needed only with many nodes

        column = self._columns.get(group)
        if column is None or len(column) < size:
            slots = self.rows_of(group).values()
            column = np.zeros(size, dtype=np.int64)
            for slot in slots:
                column[slot.position] = slot.members[group]
            if len(slots) >= LARGE:
                self._columns[group] = column
        return column

    def tally(self, group: str, key: str) -> Tally:
        if group not in self._rows:
            return {}
        tallies = self._tallies.setdefault(group, {})
        found = tallies.get(key)
        if found is None:
            found = tallies[key] = {}
            for slot in self._rows[group].values():
                _add(found, slot.labels.get(key), slot.members[group])
        return found

    def count(self, slot: NodeSlot, group: str, *, apart: bool, sign: int) -> None:
        _add(slot.members, group, sign)
        if apart:
            _add(slot.apart, group, sign)
            _add(self._apart, group, sign)
        if group in self._tallies:
            for key, tally in self._tallies[group].items():
                _add(tally, slot.labels.get(key), sign)
        if group in self._columns:
            self._columns[group][slot.position] += sign
        if group in slot.members:
            if group not in self._rows:
                self._rows[group] = {}
            self._rows[group][slot.node_id] = slot
            return
        del self._rows[group][slot.node_id]
        if not self._rows[group]:
            del self._rows[group]
            self._tallies.pop(group, None)
            self._columns.pop(group, None)

    def relabel(self, slot: NodeSlot, labels: Mapping[str, str]) -> None:
        for group, members in slot.members.items():
            for key, tally in self._tallies.get(group, {}).items():
                if slot.labels.get(key) != labels.get(key):
                    _add(tally, slot.labels.get(key), -members)
                    _add(tally, labels.get(key), members)
        slot.labels = labels


def _add(counts: dict[KeyT, int], key: KeyT, number: int) -> None:
    count = counts.get(key, 0) + number
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)
