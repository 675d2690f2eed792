"""Parsing of addresses, and the address of this machine."""

import pytest

from persys.errors import SettingsError
from persys.infra.net.address import is_service, local_address_towards, split_server


def test_the_source_address_to_this_host_is_its_own() -> None:
    assert local_address_towards("127.0.0.1:1") == "127.0.0.1"


def test_only_the_name_of_a_service_begins_with_an_underscore() -> None:
    assert is_service("_persys-scheduler._tcp.persys.local")
    assert not is_service("persys-scheduler.persys.local:8085")


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("10.0.0.5", ("10.0.0.5", 53)),
        ("10.0.0.5:1053", ("10.0.0.5", 1053)),
        ("2001:db8::1", ("2001:db8::1", 53)),
        ("[2001:db8::1]", ("2001:db8::1", 53)),
        ("[2001:db8::1]:1053", ("2001:db8::1", 1053)),
    ],
)
def test_a_dns_server_is_an_address_with_or_without_a_port(
    server: str, expected: tuple[str, int]
) -> None:
    assert split_server(server) == expected


@pytest.mark.parametrize("server", ["dns.example.com", "10.0.0.5:", "10.0.0.5:0", "10.0.0.5:70000"])
def test_an_invalid_dns_server_is_refused(server: str) -> None:
    with pytest.raises(SettingsError, match="expected an address"):
        split_server(server)
