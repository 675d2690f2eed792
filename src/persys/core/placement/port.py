"""Placement over one node index, as `decide` uses it: the real index, or a copy for planning."""

from persys.core.placement.filters import Rejection, reject, reject_resident
from persys.core.placement.hypothetical import set_aside
from persys.core.placement.node_index import Columns
from persys.core.placement.requirements import Needs
from persys.core.placement.select import Placed, Unplaceable, place
from persys.core.reconcile.situation import Rooms
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment


def rooms_over(columns: Columns) -> Rooms:
    def place_one(needs: Needs, leaving: Assignment | None) -> Placed | Unplaceable:
        if leaving is None or not needs.rules.group:
            return place(needs, columns)
        # Its own reservation must not count against anti-affinity. The node that it leaves refuses it anyway.
        with set_aside(leaving.workload_id, leaving.node_id, columns):
            return place(needs, columns)

    def fits_on(workload_id: WorkloadId, node_id: NodeId, needs: Needs) -> Rejection | None:
        """Why the node cannot reserve this much for a workload, which may have a reservation there."""
        is_there = columns.held(workload_id, node_id) is not None
        with set_aside(workload_id, node_id, columns):
            row = columns.rows[node_id]
            return reject_resident(row, needs) if is_there else reject(row, needs)

    return Rooms(place_one, fits_on)
