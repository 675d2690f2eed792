"""Whether nodes are given no more than they have, and ordered no more than is reserved. Pure.

Each function returns what is wrong, or an empty string.
"""

from collections.abc import Sequence

from persys.core.placement.columns import Columns
from persys.core.placement.needs import needs_of
from persys.model.ids import NodeId, WorkloadId
from persys.model.resources import Resources
from persys.sim.mirror import Mirror
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2


def room_problem(mirror: Mirror, node_id: NodeId) -> str:
    """Resources or host ports that are given twice, by the records of one node."""
    node = mirror.nodes.get(keys.node_key(node_id))
    if node is None:
        return ""
    total = Resources()
    ports: dict[object, WorkloadId] = {}
    for workload_id, held in sorted(mirror.holds(node_id).items()):
        total = total + held.reserved
        for port in held.host_ports:
            if port in ports:
                return f"{ports[port]} and {workload_id} both have port {port} on {node_id}"
            ports[port] = workload_id
    if total.fits_in(node.capabilities.allocatable):
        return ""
    return f"{node_id} has {node.capabilities.allocatable}, gave {total}"


def release_problem(mirror: Mirror, columns: Columns, units: Sequence[Unit]) -> str:
    """A reservation that the leader gave up while the record of it was still in the store.

    `mirror` is what was stored before these units, `columns` what the leader reserves at this moment.
    """
    for key in (key for unit in units for key in (*unit.puts, *unit.deletes)):
        old = mirror.assignments.get(key)
        if old is None or old.node_id not in columns.rows:
            continue
        held = columns.held(old.workload_id, old.node_id)
        if held is None or not old.reserved.fits_in(held.resources):
            has = held.resources if held is not None else "nothing"
            return f"{old.workload_id} has {old.reserved} on {old.node_id}, and {has} in memory"
    return ""


def order_problem(mirror: Mirror, node_id: NodeId, request: agent_pb2.ApplyWorkloadRequest) -> str:
    """An order for more than is reserved, so far as it is about what is on record now."""
    workload = mirror.workload(WorkloadId(request.id))
    bound = mirror.assignment(WorkloadId(request.id))
    if workload is None or bound is None or workload.revision != request.revision_id:
        return ""
    if (bound.node_id, bound.epoch) != (node_id, request.epoch):
        return ""
    needed = needs_of(workload).resources
    if needed.fits_in(bound.reserved):
        return ""
    return f"{node_id} was ordered {workload.id} with {needed}, and has {bound.reserved} for it"
