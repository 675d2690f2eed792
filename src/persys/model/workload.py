"""A workload: the intent of a user. Only users change it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.placement import Rules
from persys.model.resources import Resources
from persys.model.spec import Spec, WorkloadType


class Desired(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    DELETED = "deleted"


class Workload(Struct, frozen=True):
    id: WorkloadId
    spec: Spec
    revision: Revision
    created_at: datetime
    updated_at: datetime
    desired: Desired = Desired.RUNNING
    resources: Resources = Resources()
    metadata: dict[str, str] = {}
    rules: Rules = Rules()
    stop_after_seconds: int = 0  # 0: never


class StoredIntent(Struct, frozen=True):
    node_id: NodeId
    workload: Workload
    epoch: int  # of its order


class Order(Struct, frozen=True):
    workload_id: WorkloadId
    type: WorkloadType
    revision: Revision
    epoch: int  # 0: the scheduler does not use epochs
    desired: Desired
    spec: Spec
    stop_after_seconds: int = 0  # without the scheduler; 0: never
    keeps_data: bool = False  # of a delete: its volumes stay
    secret_env: tuple[str, ...] = ()  # variables whose values are never shown
    proof: bytes = b""  # of the assignment; the agent stores and reports it
