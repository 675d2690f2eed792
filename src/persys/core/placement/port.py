"""Placement over one node index, as `decide` uses it: the real index, or a copy for planning."""

from persys.core.placement.filters import Rejection, reject, reject_resident
from persys.core.placement.hypothetical import set_aside
from persys.core.placement.node_index import NodeIndex
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, Unplaceable, place
from persys.core.reconcile.situation import Placer
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment


def placer_over(node_index: NodeIndex) -> Placer:
    def place_one(needs: Requirements, leaving: Assignment | None) -> Placed | Unplaceable:
        if leaving is None or not needs.rules.group:
            return place(needs, node_index)
        # Its own reservation must not count against anti-affinity. The node that it leaves refuses it anyway.
        with set_aside(leaving.workload_id, leaving.node_id, node_index):
            return place(needs, node_index)

    def fits_on(workload_id: WorkloadId, node_id: NodeId, needs: Requirements) -> Rejection | None:
        """Why the node cannot reserve this much for a workload, which may have a reservation there."""
        is_there = node_index.held(workload_id, node_id) is not None
        with set_aside(workload_id, node_id, node_index):
            slot = node_index.slots[node_id]
            return reject_resident(slot, needs) if is_there else reject(slot, needs)

    return Placer(place_one, fits_on)
