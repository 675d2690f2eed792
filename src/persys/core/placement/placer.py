"""Placement as `decide` uses it, over the real node index or a copy, and hypothetical changes of the
index."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from persys.core.placement.explain import refusals_in_tier_0
from persys.core.placement.filters import Rejection, reject, reject_resident
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import NodeSlot
from persys.core.placement.requirements import Requirements
from persys.core.placement.select import Placed, Unplaceable, place
from persys.core.reconcile.situation import Placer
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment

TURNED_AWAY = "that rejected it just now"
BEING_REMOVED = "with an old copy of it that is being removed"


@contextmanager
def without_workload(
    workload_id: WorkloadId, node_id: NodeId, node_index: NodeIndex
) -> Iterator[None]:
    """As if the workload had no reservation there; restored afterwards. Must not await in between."""
    held = node_index.held(workload_id, node_id)
    node_index.give_back(workload_id, node_id)
    try:
        yield
    finally:
        if held is not None:
            node_index.put_hold(workload_id, node_id, held)


@contextmanager
def excluding_nodes(reasons: Mapping[NodeId, str], node_index: NodeIndex) -> Iterator[None]:
    """As if these nodes were closed, for the given reasons; restored afterwards. Must not await."""
    slots = [
        slot for node_id in reasons if (slot := node_index.slots.get(node_id)) and not slot.closed
    ]
    for slot in slots:
        node_index.close(slot.node_id, reasons[slot.node_id])
    try:
        yield
    finally:
        for slot in slots:
            node_index.close(slot.node_id, "")


def placer_over(
    node_index: NodeIndex, awaited: Callable[[NodeSlot], bool] = lambda _slot: False
) -> Placer:
    """`awaited`: whether a waiting workload could use the node."""

    def place_one(needs: Requirements, leaving: Assignment | None) -> Placed | Unplaceable:
        if leaving is None or not needs.rules.group:
            return _with_refusals(place(needs, node_index), needs, node_index)
        # Its own reservation must not count against anti-affinity. The node that it leaves refuses it anyway.
        with without_workload(leaving.workload_id, leaving.node_id, node_index):
            return _with_refusals(place(needs, node_index), needs, node_index)

    def fits_on(workload_id: WorkloadId, node_id: NodeId, needs: Requirements) -> Rejection | None:
        """Why the node cannot reserve this much for a workload, which may have a reservation there."""
        is_there = node_index.held(workload_id, node_id) is not None
        with without_workload(workload_id, node_id, node_index):
            slot = node_index.slots[node_id]
            return reject_resident(slot, needs) if is_there else reject(slot, needs)

    def is_awaited(node_id: NodeId) -> bool:
        return awaited(node_index.slots[node_id])

    return Placer(place_one, fits_on, is_awaited)


def _with_refusals(
    found: Placed | Unplaceable, needs: Requirements, node_index: NodeIndex
) -> Placed | Unplaceable:
    """An offloaded workload keeps the reason why tier 0 rejected it."""
    if not node_index.beyond or needs.tiers.preferred or not isinstance(found, Placed):
        return found
    if not node_index.slots[found.node_id].tier:
        return found
    return Placed(found.node_id, f"{found.why}; tier 0: {refusals_in_tier_0(needs, node_index)}")
