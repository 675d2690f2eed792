"""Nodes that tried to register while nothing could be written, held in memory: a rebuild calls them."""

from dataclasses import dataclass
from datetime import datetime

from persys.model.ids import NodeId
from persys.model.node import Node

CLAIMS_MAX = 20_000


@dataclass(frozen=True, slots=True)
class PendingNode:
    node: Node
    cluster_uid: str  # the cluster that it reports
    workload_count: int
    tried_at: datetime


class PendingNodes:
    def __init__(self) -> None:
        self._by_node: dict[NodeId, PendingNode] = {}
        self._claims: dict[NodeId, str] = {}

    def claim(self, node_id: NodeId, uid: str) -> None:
        """The node reports another cluster. The claim is valid also after the node has registered."""
        if node_id in self._claims or len(self._claims) < CLAIMS_MAX:
            self._claims[node_id] = uid

    def claiming(self, uid: str) -> set[NodeId]:
        return {node_id for node_id, claimed in self._claims.items() if claimed == uid}

    def note(self, pending_node: PendingNode) -> None:
        self._by_node[pending_node.node.id] = pending_node

    def all(self) -> list[PendingNode]:
        return list(self._by_node.values())

    def uids(self) -> set[str]:
        return {one.cluster_uid for one in self._by_node.values() if one.cluster_uid}

    def drop(self, node_id: NodeId) -> None:
        self._by_node.pop(node_id, None)
