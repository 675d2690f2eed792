"""What must hold of nodes that an operator removes: nothing of them comes back but by their own word."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from persys.model.ids import NodeId
from persys.model.node import Node
from persys.sim.mirror import Mirror
from persys.store import keys

# A word that was said before may be carried out so much later.
LATE_SECONDS = 60.0
NEVER = float("-inf")


@dataclass(slots=True)
class Removals:
    """Instants on the loop's clock."""

    mirror: Mirror
    time: Callable[[], float]
    fail: Callable[[str, str], None]
    joining: dict[NodeId, float] = field(default_factory=dict)  # its agent last asked to join then
    told: dict[NodeId, float] = field(default_factory=dict)  # an operator last closed it then
    removed: dict[NodeId, float] = field(default_factory=dict)

    def committed(self, touched: Collection[str], before: Mapping[str, Node]) -> None:
        for key in sorted(touched):
            if key in before and key not in self.mirror.nodes:
                self._check_gone(before[key].id)
            elif key in self.mirror.nodes and key not in before:
                self._check_back(self.mirror.nodes[key])
        self._check_bound(touched)

    def _check_gone(self, node_id: NodeId) -> None:
        self.removed[node_id] = self.time()
        for key in (*self.mirror.tombstones, *self.mirror.drifts):
            if key.startswith((f"{keys.TOMBSTONES}{node_id}/", keys.node_drifts(node_id))):
                self.fail("removal", f"{node_id} was removed, and {key} stays")

    def _check_back(self, node: Node) -> None:
        gone_at = self.removed.get(node.id)
        if gone_at is None:
            return
        if self.joining.get(node.id, NEVER) < gone_at - LATE_SECONDS:
            self.fail("removal", f"{node.id} was removed and is back without its agent's word")
        closed = node.cordoned or node.drain is not None or bool(node.taints)
        if closed and self.told.get(node.id, NEVER) < gone_at - LATE_SECONDS:
            self.fail("removal", f"{node.id} was removed and is back with what was said of it")

    def _check_bound(self, touched: Collection[str]) -> None:
        """Nothing is given to a node that is not there."""
        for key in sorted(touched):
            bound = self.mirror.assignments.get(key)
            if bound is not None and keys.node_key(bound.node_id) not in self.mirror.nodes:
                text = f"{bound.workload_id} was given to {bound.node_id}, which is no node"
                self.fail("removal", text)
