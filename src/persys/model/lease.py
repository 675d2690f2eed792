"""A node's right to be believed alive, as granted when it registered. Renewals live in memory."""

from datetime import datetime, timedelta

from msgspec import Struct

from persys.model.ids import NodeId


class Lease(Struct, frozen=True):
    node_id: NodeId
    granted_at: datetime
    length: timedelta
