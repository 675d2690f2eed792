"""The endpoints of services in the format of Traefik's HTTP provider."""

from persys.gateway.routes.gateway import traefik_configuration
from persys.wire.gen.control.v1 import control_pb2 as pb


def a_view(
    *ports: tuple[str, int, str], hosts: tuple[str, ...] = (), weight: int = 1
) -> pb.ServiceView:
    spec = pb.ServiceSpec(service_id="web", hosts=hosts)
    view = pb.ServiceView(spec=spec)
    for name, port, protocol in ports:
        view.spec.ports.add(name=name, port=port, protocol=protocol)
        view.endpoints.add(
            workload_id="web-0",
            port_name=name or str(port),
            host="10.0.0.1",
            port=20_000 + port,
            protocol=protocol or "tcp",
            weight=weight,
        )
    return view


def test_an_http_port_is_a_service_with_urls() -> None:
    assert traefik_configuration([a_view(("", 80, "http"))]) == {
        "http": {
            "services": {"web": {"loadBalancer": {"servers": [{"url": "http://10.0.0.1:20080"}]}}}
        }
    }


def test_hosts_become_a_router() -> None:
    found = traefik_configuration([a_view(("http", 80, "http"), hosts=("a.example", "b.example"))])

    assert found["http"]["routers"] == {
        "web": {"rule": "Host(`a.example`) || Host(`b.example`)", "service": "web"}
    }


def test_other_ports_are_addresses_in_their_section() -> None:
    found = traefik_configuration([a_view(("", 5432, ""), ("dns", 53, "udp"))])

    assert found["tcp"]["services"]["web-5432"]["loadBalancer"]["servers"] == [
        {"address": "10.0.0.1:25432"}
    ]
    assert found["udp"]["services"].keys() == {"web-dns"}


def test_weights_are_given_if_they_are_set() -> None:
    found = traefik_configuration([a_view(("", 80, "http"), weight=9)])

    (server,) = found["http"]["services"]["web"]["loadBalancer"]["servers"]
    assert server["weight"] == 9


def test_a_service_without_endpoints_is_left_out() -> None:
    view = a_view(("", 80, "http"), hosts=("a.example",))
    del view.endpoints[:]

    assert traefik_configuration([view]) == {}


def test_an_ipv6_address_is_in_brackets() -> None:
    view = a_view(("", 80, "http"))
    view.endpoints[0].host = "fd00::1"

    (server,) = traefik_configuration([view])["http"]["services"]["web"]["loadBalancer"]["servers"]
    assert server["url"] == "http://[fd00::1]:20080"
