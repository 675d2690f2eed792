"""A workload: the intent of a user. Only users change it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import Revision, WorkloadId
from persys.model.resources import Resources
from persys.model.rules import Rules
from persys.model.spec import Spec


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
