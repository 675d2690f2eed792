"""A node as it would be without one of its workloads, and nodes that one workload shall not get."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from persys.core.placement.columns import Columns
from persys.model.ids import NodeId, WorkloadId

TURNED_AWAY = "that turned it away just now"
BEING_REMOVED = "with an old copy of it still to be removed"


@contextmanager
def set_aside(workload_id: WorkloadId, node_id: NodeId, columns: Columns) -> Iterator[None]:
    """As if the workload had no room there; afterwards it has it again. Nothing may await in between."""
    held = columns.held(workload_id, node_id)
    columns.give_back(workload_id, node_id)
    try:
        yield
    finally:
        if held is not None:
            columns.put_hold(workload_id, node_id, held)


@contextmanager
def out_of_sight(reasons: Mapping[NodeId, str], columns: Columns) -> Iterator[None]:
    """As if these nodes took nothing new, for the given reasons. Nothing may await in between."""
    rows = [row for node_id in reasons if (row := columns.rows.get(node_id)) and not row.closed]
    for row in rows:
        columns.close(row.node_id, reasons[row.node_id])
    try:
        yield
    finally:
        for row in rows:
            columns.close(row.node_id, "")
