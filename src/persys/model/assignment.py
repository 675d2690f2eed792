"""The stored result of placement: the node of a workload, and its reservation there."""

from datetime import datetime

from msgspec import Struct

from persys.model.ids import NodeId, WorkloadId
from persys.model.pool import Draws
from persys.model.resources import Resources
from persys.model.rules import Rules


class HostPort(Struct, frozen=True, order=True):
    """An exclusive resource of a node: a host port, or the name of a Compose project."""

    port: int
    protocol: str = "tcp"
    project: str = ""  # then `port` is 0

    @classmethod
    def of_project(cls, name: str) -> "HostPort":
        return cls(0, "", name)

    def __str__(self) -> str:
        if self.project:
            return f"Compose project {self.project}"
        return f"host port {self.port}/{self.protocol}"


class Assignment(Struct, frozen=True):
    workload_id: WorkloadId
    node_id: NodeId
    epoch: int
    assigned_at: datetime
    reserved: Resources = Resources()
    host_ports: frozenset[HostPort] = frozenset()
    why: str = ""
    rules: Rules = Rules()  # at the time of placement
    pools: Draws = ()  # the part of the reservation in named pools


class Tombstone(Struct, frozen=True):
    """A stale copy that must be removed: the workload was deleted or moved.

    Its reservation stays until the node confirms the removal.
    """

    assignment: Assignment
    deleted_at: datetime
    keeps_data: bool = False  # the workload was moved, not deleted: its data stays here
    stops_at: datetime | None = None  # by then its agent has stopped it because of `stop_after`


class EpochCounter(Struct, frozen=True):
    """The epoch counter of the cluster: no epoch above it has been used."""

    reserved_until: int
    proof_key: str = ""  # hexadecimal; the key for proofs of assignment
    proofs_lost: bool = False  # nodes may have copies whose proofs were made with a lost key
