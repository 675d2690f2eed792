"""Placement over one set of columns, as decisions ask for it: the real room, or a copy to plan in."""

from persys.core.placement.aside import set_aside
from persys.core.placement.columns import Columns
from persys.core.placement.filters import Rejection, reject
from persys.core.placement.needs import Needs
from persys.core.placement.select import place
from persys.core.situation import Rooms
from persys.model.ids import NodeId, WorkloadId


def rooms_over(columns: Columns) -> Rooms:
    def fits_on(workload_id: WorkloadId, node_id: NodeId, needs: Needs) -> Rejection | None:
        """Whether a workload that may already have room on the node could have this much instead."""
        with set_aside(workload_id, node_id, columns):
            return reject(columns.rows[node_id], needs)

    return Rooms(lambda needs: place(needs, columns), fits_on)
