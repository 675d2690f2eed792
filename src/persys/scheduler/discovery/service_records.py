"""The DNS records of services: which have changed since they were last written; and the names for which a
scheduler without CoreDNS answers itself.

Only the leader writes records. What it has written is in memory, so that a change of one member writes one
record. A new leader, and one that could not write, compares all of them with the store.
"""

from collections.abc import Callable, Iterable, Mapping

from persys.core.dns_names import (
    Announcement,
    Difference,
    Zone,
    announce_agent,
    announce_scheduler,
    label_of,
)
from persys.core.services.answers import Answer, answer
from persys.core.services.endpoints import Endpoints
from persys.core.services.names import announce_endpoints
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.model.ids import NodeId
from persys.model.service import ServiceId
from persys.scheduler.services.endpoint_table import EndpointTable
from persys.scheduler.state.cluster import ClusterState

Records = dict[str, Announcement]


class ServiceRecords:
    def __init__(self, cluster: ClusterState, table: EndpointTable, clock: Clock) -> None:
        self._cluster = cluster
        self._table = table
        self._clock = clock
        self._written: dict[ServiceId, Records] = {}

    async def all(self, zone: Zone) -> Records:
        """The records of all services, which the caller writes. Services that change meanwhile follow."""
        written: dict[ServiceId, Records] = {}
        pause = TimeSlice(self._clock)
        for service_id in sorted(self._cluster.services):
            known = ServiceId(service_id)
            written[known] = self.of(known, zone)
            await pause.between()
        self._written = written
        return {name: one for found in written.values() for name, one in found.items()}

    def changed(self, service_ids: Iterable[ServiceId], zone: Zone) -> Difference:
        """The difference to what was written before. The caller writes it, or compares all."""
        puts: Records = {}
        withdrawn: list[str] = []
        for service_id in service_ids:
            old, new = self._written.get(service_id, {}), self.of(service_id, zone)
            puts |= {name: one for name, one in new.items() if old.get(name) != one}
            withdrawn += [name for name in old if name not in new]
            self._written[service_id] = new
            if not new:
                del self._written[service_id]
        return Difference(puts, withdrawn)

    def of(self, service_id: ServiceId, zone: Zone) -> Records:
        service = self._cluster.services.get(service_id)
        if service is None:
            return {}
        return announce_endpoints(service_id, self._table.of(service).endpoints, zone)


class ClusterNames:
    """Services, agents and schedulers as they are published now, from memory."""

    def __init__(
        self,
        cluster: ClusterState,
        table: EndpointTable,
        *,
        zone: Callable[[], Zone],
        address: Callable[[], str],
        port: int,
    ) -> None:
        """`address` and `port` are those of this scheduler."""
        self._cluster = cluster
        self._table = table
        self._zone = zone
        self._address = address
        self._port = port
        self._known: dict[str, tuple[Endpoints, Mapping[str, Announcement]]] = {}
        self._labels: dict[str, NodeId] = {}

    def node_changed(self, _node_id: NodeId) -> None:
        self._labels.clear()

    def resolve(self, name: str) -> Answer:
        return answer(name, self._zone(), self)

    def service(self, service_id: str) -> Mapping[str, Announcement] | None:
        service = self._cluster.services.get(service_id)
        if service is None:
            self._known.pop(service_id, None)
            return None
        found = self._table.of(service)
        known = self._known.get(service_id)
        if known is None or known[0] is not found:
            records = announce_endpoints(ServiceId(service_id), found.endpoints, self._zone())
            known = self._known[service_id] = (found, records)
        return known[1]

    def agent(self, label: str) -> Announcement | None:
        member = self._cluster.nodes.get(self._node_of(label))
        if member is None or label_of(member.node.id) != label:
            return None
        return announce_agent(member.node, self._zone())

    def schedulers(self) -> Mapping[str, Announcement]:
        return announce_scheduler(self._address(), self._port, self._zone())

    def _node_of(self, label: str) -> NodeId:
        """The node with this label, which is its id unless that is not a label."""
        if label in self._cluster.nodes:
            return NodeId(label)
        if not self._labels:
            self._labels = {label_of(node_id): node_id for node_id in self._cluster.nodes}
        return self._labels.get(label, NodeId(label))
