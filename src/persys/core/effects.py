"""Deeds that core asks a shell to do. Each is idempotent: a crash costs a repetition, never harm."""

from dataclasses import dataclass

from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Apply:
    """Tell the node to make this revision so."""

    node_id: NodeId
    workload: Workload
    epoch: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Tell the node to remove its copy."""

    node_id: NodeId
    workload_id: WorkloadId
    epoch: int
    keeps_data: bool = False  # what it wrote stays on the node


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a node that does not report by itself how the workload is."""

    node_id: NodeId
    workload_id: WorkloadId


@dataclass(frozen=True, slots=True)
class Inquire:
    """Ask the node what it was doing: an operation has not ended in time. `about` tells which."""

    node_id: NodeId
    workload_id: WorkloadId
    epoch: int
    about: str


Effect = Apply | Remove | Ask | Inquire
