"""DNS names of services, and the records that publish their endpoints.

    web.services.persys.local                     the addresses of all endpoints
    _http._tcp.web.services.persys.local          SRV: address, port and weight of each endpoint
    web-0._http._tcp.web.services.persys.local    the address of one endpoint, the target of its SRV record

There is one record per endpoint, under the last of these names: a server that reads them, CoreDNS or the
scheduler, answers for a name with all records at and below it.
"""

from collections.abc import Iterable

from persys.core.dns_names import Announcement, Zone
from persys.core.services.endpoints import Endpoint
from persys.model.ids import WorkloadId
from persys.model.service import ServiceId, ServicePort

SERVICES = "services"


def services_domain(zone: Zone) -> str:
    return f"{SERVICES}.{zone.domain}"


def service_name(service_id: ServiceId, zone: Zone) -> str:
    return f"{service_id}.{services_domain(zone)}"


def port_label(port: ServicePort) -> str:
    return f"_{port.name}._{port.protocol.transport}"


def endpoint_name(
    workload_id: WorkloadId, port: ServicePort, service_id: ServiceId, zone: Zone
) -> str:
    return f"{workload_id}.{port_label(port)}.{service_name(service_id, zone)}"


def announce_endpoints(
    service_id: ServiceId, endpoints: Iterable[Endpoint], zone: Zone
) -> dict[str, Announcement]:
    """The records of a service, by name."""
    return {
        endpoint_name(one.workload_id, one.service_port, service_id, zone): Announcement(
            one.host, one.port, zone.cluster_uid, one.node_id, weight=one.weight
        )
        for one in endpoints
    }
