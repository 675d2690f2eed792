"""Which services are valid, and what an apply changes."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from builders import NOON
from persys.core.dns_names import Zone
from persys.core.services.checks import Outcome, apply, check_names, check_service
from persys.errors import InvalidError
from persys.model.service import Selector, ServiceId, ServicePort, ServiceProtocol
from service_builders import HTTP, a_service

LATER = NOON + timedelta(hours=1)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("service_id", {"service_id": ServiceId("Web")}),
        ("ports", {"ports": ()}),
        ("ports", {"ports": tuple(ServicePort(f"p{n}", n + 1) for n in range(17))}),
        ("ports[0].port", {"ports": (ServicePort("http", 0),)}),
        ("ports[0].name", {"ports": (ServicePort("Http", 80),)}),
        ("ports[1].name", {"ports": (HTTP, HTTP)}),
        ("members", {"members": ()}),
        ("members[0]", {"members": (Selector(),)}),
        ("members[0]", {"members": (Selector("web", {"app": "web"}),)}),
        ("members[0].set", {"members": (Selector("Web"),)}),
        ("members[0].labels", {"members": (Selector(labels={"": "x"}),)}),
        ("members[0].weight", {"members": (Selector("web", weight=101),)}),
        ("members[0].weight", {"members": (Selector("web", weight=-1),)}),
        ("hosts[0]", {"hosts": ("a b",)}),
        ("hosts[0]", {"hosts": ("x`) || Host(`y",)}),
        ("hosts", {"hosts": ("a.example",), "ports": (ServicePort("p", 1),)}),
    ],
)
def test_an_invalid_service_is_refused_with_its_field(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidError) as refused:
        check_service(replace(a_service(), **changes))

    assert refused.value.field == field


def test_a_valid_service_is_accepted() -> None:
    dns = ServicePort("53", 53, ServiceProtocol.UDP)
    service = a_service(
        Selector("web", weight=100), Selector(labels={"a": "b"}), ports=(HTTP, dns), hosts=("a.b",)
    )

    check_service(service)


def test_names_that_are_too_long_for_dns_are_refused() -> None:
    service = replace(a_service(), service_id=ServiceId("s" * 63))
    check_names(service, Zone("persys.local", "agents.persys.cloud", "default"))

    with pytest.raises(InvalidError, match="expected at most 253"):
        check_names(service, Zone("d" * 60 + "." + "e" * 60, "agents.persys.cloud", "default"))


def test_an_apply_creates_updates_or_changes_nothing() -> None:
    created = apply(None, a_service(), now=NOON)
    same = apply(created.service, replace(a_service(), created_at=LATER), now=LATER)
    updated = apply(created.service, a_service(Selector("shop")), now=LATER)

    assert created.outcome is Outcome.CREATED
    assert (same.outcome, same.service) == (Outcome.UNCHANGED, created.service)
    assert updated.outcome is Outcome.UPDATED
    assert (updated.service.created_at, updated.service.updated_at) == (NOON, LATER)
