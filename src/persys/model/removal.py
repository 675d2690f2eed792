"""A node that was removed, and when: whoever was let in as that node until then is not let in any more."""

from datetime import datetime

from msgspec import Struct

from persys.model.ids import NodeId


class Removal(Struct, frozen=True):
    node_id: NodeId
    removed_at: datetime
