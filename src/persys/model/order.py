"""An order to an agent: one revision of one workload for one assignment."""

from msgspec import Struct

from persys.model.ids import Revision, WorkloadId
from persys.model.spec import Spec, WorkloadType
from persys.model.workload import Desired


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
