"""What the agent must not forget: the nouns of its local journal."""

from datetime import datetime

from msgspec import Struct

from persys.core.convergence import Progress
from persys.model.failure import Failure
from persys.model.ids import ActionId, WorkloadId
from persys.model.observation import Actual
from persys.model.order import Order


class Standing(Struct, frozen=True):
    """How a workload stands, as last seen."""

    actual: Actual
    changed_at: datetime
    code: str = ""
    message: str = ""
    failure: Failure | None = None
    metadata: dict[str, str] = {}


class Entry(Struct, frozen=True):
    """All that is known of one workload."""

    order: Order
    generation: int  # rises with each order taken, so that work for an older one is recognised
    action_id: ActionId  # the last action, open while it is pending or running
    created_at: datetime
    updated_at: datetime
    standing: Standing
    progress: Progress = Progress()
    # Every managed volume it was ever given: True if it must outlive the workload.
    volumes: dict[str, bool] = {}
    intent: bytes = b""  # the scheduler's own record, kept for it as it came
    cluster_uid: str = ""  # whose epoch its order has; "": not known
    sealed: bytes = b""  # on the disk: the values of secrets, which its order lacks there


class Image(Struct, frozen=True):
    """An image that this agent fetched. Another one may have its name by now; it then has another id."""

    name: str
    id: str
    fetched_at: datetime
    used_at: datetime  # when it was last seen in use


class Burial(Struct, frozen=True):
    """A workload that was deleted here: no order up to this epoch is taken for it any more.

    `told`: the scheduler has acknowledged it.
    """

    workload_id: WorkloadId
    epoch: int
    told: bool = False
    was_here: bool = True  # False: its deletion was ordered before it had arrived
    cluster_uid: str = ""  # whose epoch it is; "": not known
