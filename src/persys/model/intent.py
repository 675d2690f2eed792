"""A workload as its node keeps it for the scheduler, so that what a store loses is not lost."""

from msgspec import Struct

from persys.model.ids import NodeId
from persys.model.workload import Workload


class KeptIntent(Struct, frozen=True):
    node_id: NodeId
    workload: Workload
    epoch: int  # of the order that brought it
