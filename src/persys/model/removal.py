"""A removed node and the time of its removal. Certificates from before that time are not accepted."""

from datetime import datetime

from msgspec import Struct

from persys.model.ids import NodeId


class Removal(Struct, frozen=True):
    node_id: NodeId
    removed_at: datetime
