"""A workload as stored by its agent, to rebuild a lost store."""

from msgspec import Struct

from persys.model.ids import NodeId
from persys.model.workload import Workload


class KeptIntent(Struct, frozen=True):
    node_id: NodeId
    workload: Workload
    epoch: int  # of its order
