"""Checks of removed nodes: a removed node returns only if its agent registers again."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from persys.model.ids import NodeId
from persys.model.node import Node
from persys.sim.checks.store_mirror import StoreMirror
from persys.store import keys

# A request from before the removal may be processed this much later.
LATE_SECONDS = 60.0
NEVER = float("-inf")


@dataclass(slots=True)
class RemovalChecks:
    """All instants are on the loop's clock."""

    mirror: StoreMirror
    time: Callable[[], float]
    fail: Callable[[str, str], None]
    joining: dict[NodeId, float] = field(
        default_factory=dict
    )  # last registration request of the agent
    told: dict[NodeId, float] = field(default_factory=dict)  # last cordon or drain by an operator
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
                self.fail("removal", f"{node_id} was removed, but {key} still exists")

    def _check_back(self, node: Node) -> None:
        gone_at = self.removed.get(node.id)
        if gone_at is None:
            return
        if self.joining.get(node.id, NEVER) < gone_at - LATE_SECONDS:
            self.fail("removal", f"{node.id} was removed and is back without a registration")
        closed = node.cordoned or node.drain is not None or bool(node.taints)
        if closed and self.told.get(node.id, NEVER) < gone_at - LATE_SECONDS:
            self.fail("removal", f"{node.id} was removed and is back cordoned, drained or tainted")

    def _check_bound(self, touched: Collection[str]) -> None:
        """No assignment to a node that does not exist."""
        for key in sorted(touched):
            bound = self.mirror.assignments.get(key)
            if bound is not None and keys.node_key(bound.node_id) not in self.mirror.nodes:
                text = f"{bound.workload_id} was assigned to {bound.node_id}, which does not exist"
                self.fail("removal", text)
