"""Hypothetical placement: a node without one of its workloads, and nodes excluded for one workload."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from persys.core.placement.node_index import NodeIndex
from persys.model.ids import NodeId, WorkloadId

TURNED_AWAY = "that rejected it just now"
BEING_REMOVED = "with an old copy of it that is being removed"


@contextmanager
def set_aside(workload_id: WorkloadId, node_id: NodeId, node_index: NodeIndex) -> Iterator[None]:
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
