"""A node as it would be without one of its workloads."""

from collections.abc import Iterator
from contextlib import contextmanager

from persys.core.placement.columns import Columns
from persys.model.ids import NodeId, WorkloadId


@contextmanager
def set_aside(workload_id: WorkloadId, node_id: NodeId, columns: Columns) -> Iterator[None]:
    """As if the workload had no room there; afterwards it has it again. Nothing may await in between."""
    held = columns.held(workload_id, node_id)
    columns.give_back(workload_id, node_id)
    try:
        yield
    finally:
        if held is not None:
            columns.hold(
                workload_id,
                node_id,
                held.resources,
                held.host_ports,
                group=held.group,
                apart=held.apart,
            )
