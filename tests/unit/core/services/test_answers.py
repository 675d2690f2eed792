"""Which records answer a DNS question."""

from collections.abc import Mapping

import pytest

from persys.core.dns_names import Announcement, Zone, announce_scheduler
from persys.core.services.answers import Outcome, answer

ZONE = Zone("persys.local", "agents.persys.cloud", "default")
HTTP = "web-0._http._tcp.web.services.persys.local"
DNS = "web-1._dns._udp.web.services.persys.local"


class Published:
    def service(self, service_id: str) -> Mapping[str, Announcement] | None:
        if service_id == "empty":
            return {}
        if service_id != "web":
            return None
        return {HTTP: Announcement("10.0.0.1", 8080), DNS: Announcement("10.0.0.2", 5300)}

    def agent(self, label: str) -> Announcement | None:
        return Announcement("10.0.0.1", 50051) if label == "n1" else None

    def schedulers(self) -> Mapping[str, Announcement]:
        return announce_scheduler("10.0.0.9", 8085, ZONE)


def asked(name: str) -> tuple[Outcome, list[str]]:
    found = answer(name, ZONE, Published())
    return found.outcome, [own for own, _ in found.records]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("web.services.persys.local", [HTTP, DNS]),
        ("_tcp.web.services.persys.local", [HTTP]),
        ("_http._tcp.web.services.persys.local", [HTTP]),
        (HTTP, [HTTP]),
        ("n1.default.agents.persys.cloud", ["n1.default.agents.persys.cloud"]),
        (
            "_persys-scheduler._tcp.persys.local",
            ["10-0-0-9-8085._persys-scheduler._tcp.persys.local"],
        ),
        ("persys-scheduler.persys.local", ["10-0-0-9-8085.persys-scheduler.persys.local"]),
    ],
)
def test_a_name_is_answered_with_all_records_at_and_below_it(name: str, own: list[str]) -> None:
    assert asked(name) == (Outcome.FOUND, own)


@pytest.mark.parametrize(
    "name",
    [
        "persys.local",
        "services.persys.local",
        "empty.services.persys.local",
        "agents.persys.cloud",
        "default.agents.persys.cloud",
    ],
)
def test_a_name_without_records_exists(name: str) -> None:
    assert asked(name) == (Outcome.FOUND, [])


@pytest.mark.parametrize(
    "name",
    [
        "shop.services.persys.local",
        "_smtp._tcp.web.services.persys.local",
        "web-9._http._tcp.web.services.persys.local",
        "n2.default.agents.persys.cloud",
        "other.agents.persys.cloud",
        "absent.persys.local",
    ],
)
def test_an_unknown_name_is_missing(name: str) -> None:
    assert asked(name)[0] is Outcome.MISSING


@pytest.mark.parametrize("name", ["example.org", "", "local", "xpersys.local", "cloud"])
def test_names_of_others_are_refused(name: str) -> None:
    assert asked(name) == (Outcome.REFUSED, [])
