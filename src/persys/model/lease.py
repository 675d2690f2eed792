"""The lease of a node, granted when it registers. Renewals are in memory only."""

from datetime import datetime, timedelta

from msgspec import Struct

from persys.model.ids import NodeId


class Lease(Struct, frozen=True):
    node_id: NodeId
    granted_at: datetime
    length: timedelta
