"""persysctl service list, get, endpoints and delete, and services in spec files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1.control_pb2 import ExcludedMember, FailureReason, ServiceEndpoint

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

SERVICE = """\
kind: service
id: web
ports:
  - {name: http, port: 80, protocol: http}
  - 53/udp
members:
  - {set: web, weight: 9}
  - labels: {app: web}
hosts: [shop.example.org]
"""


def created(ctl: Run) -> None:
    assert ctl("apply", "-f", "-", stdin=SERVICE).out == "service/web: created\n"


def with_endpoints(cluster: Cluster) -> None:
    view = cluster.services["web"]
    view.member_count, view.healthy_count = 2, 1
    view.dns_name = "web.services.persys.local"
    view.endpoints.append(
        ServiceEndpoint(
            workload_id="web-0",
            node_id="n1",
            port_name="http",
            host="fd00::1",
            port=32768,
            weight=9,
        )
    )
    view.excluded.append(
        ExcludedMember(workload_id="web-1", health="unhealthy", reason="its health check fails")
    )


def test_a_service_is_applied_from_a_file(ctl: Run, cluster: Cluster) -> None:
    created(ctl)

    spec = cluster.services["web"].spec
    assert [(port.name, port.port, port.protocol) for port in spec.ports] == [
        ("http", 80, "http"),
        ("", 53, "udp"),
    ]
    assert [(one.set, dict(one.labels), one.weight) for one in spec.members] == [
        ("web", {}, 9),
        ("", {"app": "web"}, 0),
    ]


def test_a_shown_service_is_applied_unchanged(ctl: Run, cluster: Cluster) -> None:
    created(ctl)
    with_endpoints(cluster)

    shown = ctl("service", "get", "web", "-o", "yaml")

    assert "status:" in shown.out
    assert ctl("apply", "-f", "-", stdin=shown.out).out == "service/web: unchanged\n"


def test_a_plan_compares_services(ctl: Run) -> None:
    new = ctl("plan", "-f", "-", stdin=SERVICE)
    created(ctl)
    same = ctl("plan", "-f", "-", stdin=SERVICE)
    changed = ctl("plan", "-f", "-", stdin=SERVICE.replace("weight: 9", "weight: 8"))

    assert "+ service/web: create" in new.out
    assert same.code == 0
    assert "~ service/web: update" in changed.out
    assert "weight  9 -> 8" in changed.out


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("weight: 9", "weight: 900", "members[0].weight: invalid weight 900: expected 1 to 100"),
        ("53/udp", "53/sctp", "ports[1]: invalid port '53/sctp'"),
        ("hosts: [shop", "hosts: [SHOP", "hosts[0]: invalid host 'SHOP.example.org'"),
        ("id: web", "id: Web", "id: invalid workload id 'Web'"),
        ("members:", "member:", "member: unknown key; did you mean members?"),
        ("ports:", "port: 80\nports:", "ports: conflicts with port; set only one of them"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place(
    ctl: Run, old: str, new: str, error: str
) -> None:
    result = ctl("apply", "-f", "-", stdin=SERVICE.replace(old, new, 1))

    assert result.code == 2
    assert error in result.err


def test_one_port_has_a_short_form(ctl: Run, cluster: Cluster) -> None:
    ctl("apply", "-f", "-", stdin="kind: service\nid: web\nport: 80\nmembers: [{set: web}]\n")

    (port,) = cluster.services["web"].spec.ports
    assert port.port == 80


def test_a_service_shows_its_endpoints_and_why_others_are_none(ctl: Run, cluster: Cluster) -> None:
    created(ctl)
    with_endpoints(cluster)

    shown = ctl("service", "get", "web").out

    assert "web.services.persys.local" in shown
    assert "[fd00::1]:32768" in shown
    assert "its health check fails" in shown
    assert "1 of 2" in ctl("service", "list").out


def test_the_addresses_are_listed_for_scripts(ctl: Run, cluster: Cluster) -> None:
    created(ctl)
    assert ctl("service", "endpoints", "web").out == "no endpoints\n"
    with_endpoints(cluster)

    assert ctl("service", "endpoints", "web", "-o", "name").out == "[fd00::1]:32768\n"


def test_services_are_deleted_by_name_and_by_file(ctl: Run, cluster: Cluster) -> None:
    created(ctl)
    assert ctl("service", "delete", "web").out == "service/web: deleted\n"
    missing = ctl("service", "delete", "web")
    assert missing.code != 0
    assert "service not found: web" in missing.err
    created(ctl)

    assert ctl("delete", "-f", "-", stdin=SERVICE).out == "service/web: being deleted\n"
    assert cluster.services == {}


def test_a_refusal_names_the_place_in_the_file(ctl: Run, cluster: Cluster) -> None:
    cluster.refusal = (
        FailureReason.INVALID_SPEC,
        "service_id: invalid service id 'web': DNS names are too long",
    )

    result = ctl("apply", "-f", "-", stdin=SERVICE)

    assert "standard input:2:5: id: invalid service id 'web'" in result.err
