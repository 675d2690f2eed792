"""The endpoints of each service, computed when they are read.

A change only marks the member. The next read judges the marked members again, so that many changes between
two reads cost as much as one. Nothing is stored.
"""

from dataclasses import dataclass, field

from persys.core.services.endpoints import Endpoints, Judged, Member, combine, judge
from persys.model.ids import NodeId, WorkloadId
from persys.model.service import Service, ServiceId
from persys.scheduler.signals import Signal
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.service_members import MemberChange


@dataclass(slots=True)
class _Known:
    """`found` is None after a change. `marked`: members to judge again."""

    service: Service
    judged: dict[WorkloadId, Judged] = field(default_factory=dict)
    marked: set[WorkloadId] = field(default_factory=set)
    found: Endpoints | None = None


class EndpointTable:
    def __init__(self, cluster: ClusterState, changed: Signal[ServiceId]) -> None:
        """`changed` is emitted when the endpoints of a service may have changed."""
        self._cluster = cluster
        self._changed = changed
        self._known: dict[ServiceId, _Known] = {}

    def of(self, service: Service) -> Endpoints:
        known = self._known.get(service.service_id)
        if known is None or known.service is not service:
            known = _Known(
                service, marked=set(self._cluster.service_members.of(service.service_id))
            )
            self._known[service.service_id] = known
        if known.found is None or known.marked:
            for workload_id in known.marked:
                self._judge(known, workload_id)
            known.marked.clear()
            known.found = combine(known.judged.values())
        return known.found

    def note(self, change: MemberChange) -> None:
        """A service or a member of one has changed."""
        known = self._known.get(change.service_id)
        if change.workload_id is None:
            self._known.pop(change.service_id, None)
        elif known is not None:
            known.marked.add(change.workload_id)
        self._changed.emit(change.service_id)

    def node_changed(self, node_id: NodeId) -> None:
        if self._cluster.services:
            for workload_id in self._cluster.on_node.get(node_id, ()):
                self._cluster.service_members.note(workload_id)

    def _judge(self, known: _Known, workload_id: WorkloadId) -> None:
        cluster = self._cluster
        entry = cluster.workloads.get(workload_id)
        judged = None
        if entry is not None:
            member = Member(entry.workload, entry.assignment, entry.workload_status)
            at = entry.assignment
            node = cluster.nodes.get(at.node_id) if at is not None else None
            judged = judge(known.service, member, node.node if node is not None else None)
        if judged is None:
            known.judged.pop(workload_id, None)
        else:
            known.judged[workload_id] = judged
