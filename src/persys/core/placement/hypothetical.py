"""Hypothetical placement: a node without one of its workloads, and nodes excluded for one workload."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from persys.core.placement.node_index import Columns
from persys.model.ids import NodeId, WorkloadId

TURNED_AWAY = "that rejected it just now"
BEING_REMOVED = "with an old copy of it that is being removed"


@contextmanager
def set_aside(workload_id: WorkloadId, node_id: NodeId, columns: Columns) -> Iterator[None]:
    """As if the workload had no reservation there; restored afterwards. Must not await in between."""
    held = columns.held(workload_id, node_id)
    columns.give_back(workload_id, node_id)
    try:
        yield
    finally:
        if held is not None:
            columns.put_hold(workload_id, node_id, held)


@contextmanager
def out_of_sight(reasons: Mapping[NodeId, str], columns: Columns) -> Iterator[None]:
    """As if these nodes were closed, for the given reasons; restored afterwards. Must not await."""
    rows = [row for node_id in reasons if (row := columns.rows.get(node_id)) and not row.closed]
    for row in rows:
        columns.close(row.node_id, reasons[row.node_id])
    try:
        yield
    finally:
        for row in rows:
            columns.close(row.node_id, "")
