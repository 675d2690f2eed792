"""The records of the agent's local journal."""

from datetime import datetime

from msgspec import Struct

from persys.core.agent.next_step import Progress
from persys.model.ids import ActionId, WorkloadId
from persys.model.status import Actual, Failure
from persys.model.workload import Order


class Standing(Struct, frozen=True):
    """The status of a workload as last observed."""

    actual: Actual
    changed_at: datetime
    code: str = ""
    message: str = ""
    failure: Failure | None = None
    metadata: dict[str, str] = {}


class Entry(Struct, frozen=True):
    """The journal record of one workload."""

    order: Order
    generation: int  # incremented with each accepted order, to recognise work for an older one
    action_id: ActionId  # the last action, open while it is pending or running
    created_at: datetime
    updated_at: datetime
    standing: Standing
    progress: Progress = Progress()
    # All managed volumes of the workload so far: True if the volume must be retained.
    volumes: dict[str, bool] = {}
    intent: bytes = b""  # the scheduler's own record, stored unchanged
    cluster_uid: str = ""  # the cluster of the order's epoch; "": unknown
    sealed: bytes = b""  # on disk only: the encrypted secret values of the order


class Image(Struct, frozen=True):
    """An image that this agent pulled. If its name refers to another image now, the id differs."""

    name: str
    id: str
    fetched_at: datetime
    used_at: datetime  # the last time it was in use


class Burial(Struct, frozen=True):
    """Deletion marker of a workload: orders up to this epoch are refused.

    `told`: the scheduler has acknowledged it.
    """

    workload_id: WorkloadId
    epoch: int
    told: bool = False
    was_here: bool = True  # False: the delete arrived before any apply
    cluster_uid: str = ""  # the cluster of the epoch; "": unknown
