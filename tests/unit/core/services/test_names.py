"""The DNS records of a service."""

from persys.core.dns_names import Zone
from persys.core.services.endpoints import endpoints
from persys.core.services.names import announce_endpoints, service_name
from persys.model.service import Selector, ServicePort, ServiceProtocol
from service_builders import HTTP, a_member, a_node, a_service

ZONE = Zone("persys.local", "agents.persys.cloud", "default", "uid-1")


def test_each_endpoint_has_one_record_under_its_port() -> None:
    dns = ServicePort("dns", 53, ServiceProtocol.UDP)
    service = a_service(Selector("web", weight=9), ports=(HTTP, dns))
    ports = {"container.ports": "8080->80/tcp,5300->53/udp"}
    node = a_node("n1")
    found = endpoints(service, [a_member(metadata=ports)], {node.id: node})

    records = announce_endpoints(service.service_id, found.endpoints, ZONE)

    assert {name: (one.host, one.port, one.weight, one.ttl) for name, one in records.items()} == {
        "web-0._http._tcp.web.services.persys.local": ("10.0.0.1", 8080, 9, 5),
        "web-0._dns._udp.web.services.persys.local": ("10.0.0.1", 5300, 9, 5),
    }
    assert {one.cluster_uid for one in records.values()} == {"uid-1"}


def test_the_name_of_a_service_is_below_services() -> None:
    assert service_name(a_service().service_id, ZONE) == "web.services.persys.local"
