"""The recorded result of placement: which node holds a workload, and what is reserved there for it."""

from datetime import datetime

from msgspec import Struct

from persys.model.ids import NodeId, WorkloadId
from persys.model.pool import Draws
from persys.model.resources import Resources
from persys.model.rules import Rules


class HostPort(Struct, frozen=True, order=True):
    """What only one workload of a node can have: a port of the host, or the name of a Compose project."""

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
    rules: Rules = Rules()  # as they were when the node was chosen
    pools: Draws = ()  # of what is reserved, the part in named pools


class Tombstone(Struct, frozen=True):
    """A copy that must go although the workload is gone or lives elsewhere.

    It keeps its reservation until its node says that the copy is gone.
    """

    assignment: Assignment
    deleted_at: datetime
    keeps_data: bool = False  # it lives elsewhere: nobody asked to delete what it wrote here
    stops_at: datetime | None = None  # by then its own agent has stopped it without the scheduler


class EpochCounter(Struct, frozen=True):
    """The one counter of the cluster: no epoch above it has been used."""

    reserved_until: int
    proof_key: str = ""  # hexadecimal; proves which epochs were given to which node
    proofs_lost: bool = (
        False  # nodes may have copies whose proofs were made with a key that is gone
    )
