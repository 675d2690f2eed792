"""The recorded result of placement: which node holds a workload, and what is reserved there for it."""

from datetime import datetime

from msgspec import Struct

from persys.model.ids import NodeId, WorkloadId
from persys.model.resources import Resources


class HostPort(Struct, frozen=True, order=True):
    port: int
    protocol: str = "tcp"

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}"


class Assignment(Struct, frozen=True):
    workload_id: WorkloadId
    node_id: NodeId
    epoch: int
    assigned_at: datetime
    reserved: Resources = Resources()
    host_ports: frozenset[HostPort] = frozenset()
    why: str = ""


class Tombstone(Struct, frozen=True):
    """A workload that was deleted while its node could not be asked: removed there when it returns."""

    workload_id: WorkloadId
    node_id: NodeId
    epoch: int
    deleted_at: datetime
