"""Checks of reservations: nodes are not overcommitted, and orders fit their reservation. Pure.

Each function returns the problem, or an empty string.
"""

from collections.abc import Sequence

from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.requirements import requirements_of
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources
from persys.sim.checks.store_mirror import Mirror
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2


def room_problem(mirror: Mirror, node_id: NodeId) -> str:
    """Resources or host ports of a node that are reserved twice."""
    node = mirror.nodes.get(keys.node_key(node_id))
    if node is None:
        return ""
    total = Resources()
    ports: dict[object, WorkloadId] = {}
    for workload_id, held in sorted(mirror.holds(node_id).items()):
        total = total + held.reserved
        for port in held.host_ports:
            if port in ports:
                return f"{ports[port]} and {workload_id} both reserve port {port} on {node_id}"
            ports[port] = workload_id
    if total.fits_in(node.capabilities.allocatable):
        return ""
    return f"{node_id} has {node.capabilities.allocatable}, but {total} is reserved"


def release_problem(mirror: Mirror, node_index: NodeIndex, units: Sequence[Unit]) -> str:
    """A reservation that the leader released in memory while its record was still in the store.

    `mirror` is the state before these units, `node_index` the current reservations of the leader.
    """
    for key in (key for unit in units for key in (*unit.puts, *unit.deletes)):
        old = mirror.assignments.get(key)
        if old is None or old.node_id not in node_index.slots:
            continue
        held = node_index.held(old.workload_id, old.node_id)
        if held is None or not old.reserved.fits_in(held.resources):
            has = held.resources if held is not None else "nothing"
            return f"{old.workload_id} has {old.reserved} on {old.node_id}, but {has} in memory"
    return ""


def order_problem(mirror: Mirror, node_id: NodeId, request: agent_pb2.ApplyWorkloadRequest) -> str:
    """An order for more than is reserved, if it belongs to the current records."""
    workload = mirror.workload(WorkloadId(request.id))
    bound = mirror.assignment(WorkloadId(request.id))
    if workload is None or bound is None or workload.revision != request.revision_id:
        return ""
    if (bound.node_id, bound.epoch) != (node_id, request.epoch):
        return ""
    needed = requirements_of(workload).resources
    if needed.fits_in(bound.reserved):
        return ""
    return f"{node_id} received {workload.id} with {needed}, but {bound.reserved} is reserved"
