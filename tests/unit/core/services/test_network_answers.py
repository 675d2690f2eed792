"""DNS answers for members."""

from persys.core.services.answers import Outcome
from persys.core.services.answers import answer_of_networks as answer
from persys.model.network import NetworkId, NetworkName, NodeNetwork

BACKEND = NodeNetwork(
    NetworkId("backend"),
    7,
    "10.128.0.0/22",
    ("10.128.0.0/26",),
    names=(NetworkName("web", ("10.128.0.5", "10.128.0.70")), NetworkName("idle", ())),
)
FRONT = NodeNetwork(
    NetworkId("front"), 8, "10.129.0.0/22", (), names=(NetworkName("proxy", ("10.129.0.9",)),)
)
DOMAIN = "persys.local"


def hosts(name: str) -> list[str]:
    return [one.host for _, one in answer(name, [BACKEND, FRONT], DOMAIN).records]


def test_a_member_is_found_by_its_short_and_its_full_name() -> None:
    for name in ("web", "web.backend", "web.backend.persys.local"):
        assert hosts(name) == ["10.128.0.5", "10.128.0.70"]


def test_names_of_all_given_networks_are_found() -> None:
    assert hosts("proxy") == hosts("proxy.front.persys.local") == ["10.129.0.9"]


def test_a_name_without_healthy_members_exists() -> None:
    assert answer("idle", [BACKEND], DOMAIN).outcome is Outcome.FOUND


def test_an_unknown_name_of_the_network_is_missing() -> None:
    assert answer("other.backend.persys.local", [BACKEND], DOMAIN).outcome is Outcome.MISSING


def test_other_names_are_refused_so_that_they_are_forwarded() -> None:
    for name in ("example.org", "other", "api.services.persys.local"):
        assert answer(name, [BACKEND], DOMAIN).outcome is Outcome.REFUSED
