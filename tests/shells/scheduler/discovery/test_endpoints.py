"""The DNS names and the address of a scheduler, from its settings."""

from ipaddress import ip_address
from typing import Any

import pytest

from persys.errors import SettingsError
from persys.scheduler.discovery.endpoints import (
    address_of,
    check_discovery_settings,
    dns_etcd_endpoints,
    port_of,
    zone_of,
)
from persys.scheduler.settings import SchedulerSettings


def test_the_default_names_are_those_of_the_contract() -> None:
    zone = zone_of(SchedulerSettings())

    assert (zone.domain, zone.of_shard) == ("persys.local", "default.agents.persys.cloud")


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"advertise_ip": "10.0.0.9", "grpc_addr": "10.0.0.1"}, "10.0.0.9"),
        ({"advertise_ip": "[2001:db8::9]"}, "2001:db8::9"),
        ({"grpc_addr": "10.0.0.1"}, "10.0.0.1"),
    ],
)
def test_the_configured_address_takes_precedence_over_the_listen_address(
    settings: dict[str, Any], address: str
) -> None:
    assert address_of(SchedulerSettings(**settings)) == address


def test_the_default_address_is_that_of_the_default_route() -> None:
    found = ip_address(address_of(SchedulerSettings(grpc_addr="0.0.0.0")))

    assert not found.is_unspecified
    assert not found.is_loopback


def test_the_default_port_is_the_grpc_port() -> None:
    assert port_of(SchedulerSettings(grpc_port=1)) == 1
    assert port_of(SchedulerSettings(grpc_port=1, advertise_port=2)) == 2


@pytest.mark.parametrize(
    ("settings", "endpoints"),
    [
        ({}, ()),
        ({"store": "etcd", "etcd_endpoints": ("a:1",)}, ("a:1",)),
        ({"discovery_etcd_endpoints": ("b:2",)}, ("b:2",)),
        ({"store": "etcd", "discovery_etcd_endpoints": ("b:2",)}, ("b:2",)),
    ],
)
def test_names_are_written_to_the_etcd_of_the_store_or_the_configured_one(
    settings: dict[str, Any], endpoints: tuple[str, ...]
) -> None:
    assert dns_etcd_endpoints(SchedulerSettings(**settings)) == endpoints


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"domain": "a b"}, "DOMAIN"),
        ({"agents_discovery_domain": ".."}, "AGENTS_DISCOVERY_DOMAIN"),
        ({"shard_key": "a/b"}, "SCHEDULER_SHARD_KEY"),
        (
            {"shard_key": "s" * 63 + "." + "t" * 63, "agents_discovery_domain": "d" * 63 + ".x"},
            "SHARD",
        ),
        ({"advertise_ip": "host.example.com"}, "SCHEDULER_ADVERTISE_IP"),
        ({"advertise_ip": "0.0.0.0"}, "SCHEDULER_ADVERTISE_IP"),
        ({"advertise_port": 65536}, "SCHEDULER_ADVERTISE_PORT"),
    ],
)
def test_an_invalid_discovery_setting_is_refused_by_name(
    settings: dict[str, Any], variable: str
) -> None:
    with pytest.raises(SettingsError, match=variable):
        check_discovery_settings(SchedulerSettings(**settings))
