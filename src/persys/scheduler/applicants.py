"""Nodes that wanted to join while nothing could be written, kept in memory: a rebuild reaches them."""

from dataclasses import dataclass
from datetime import datetime

from persys.model.ids import NodeId
from persys.model.node import Node


@dataclass(frozen=True, slots=True)
class Applicant:
    node: Node
    cluster_uid: str  # the cluster it says it belonged to
    workload_count: int
    asked_at: datetime


class Applicants:
    def __init__(self) -> None:
        self._by_node: dict[NodeId, Applicant] = {}

    def note(self, applicant: Applicant) -> None:
        self._by_node[applicant.node.id] = applicant

    def all(self) -> list[Applicant]:
        return list(self._by_node.values())

    def uids(self) -> set[str]:
        return {one.cluster_uid for one in self._by_node.values() if one.cluster_uid}

    def drop(self, node_id: NodeId) -> None:
        self._by_node.pop(node_id, None)
