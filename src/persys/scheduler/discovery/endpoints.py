"""The DNS names and the address of a scheduler, and the etcd in which they are published."""

from ipaddress import ip_address

from persys.core.dns_names import PORT_MAX, Zone, checked_name, scheduler_service
from persys.errors import SettingsError
from persys.infra.net.address import default_route_address, split_server
from persys.scheduler.settings import ETCD, SchedulerSettings


def zone_of(settings: SchedulerSettings) -> Zone:
    zone = Zone(
        checked_name(settings.domain, field="DOMAIN"),
        checked_name(settings.agents_discovery_domain, field="AGENTS_DISCOVERY_DOMAIN"),
        checked_name(settings.shard_key, field="SCHEDULER_SHARD_KEY"),
    )
    checked_name(zone.of_shard, field="SCHEDULER_SHARD_KEY with AGENTS_DISCOVERY_DOMAIN")
    return zone


def address_of(settings: SchedulerSettings) -> str:
    """The configured address, else the one it listens on, else the source address of outgoing connections."""
    if settings.advertise_ip:
        return settings.advertise_ip.strip("[]")
    if _is_one_address(settings.grpc_addr):
        return settings.grpc_addr.strip("[]")
    return default_route_address().strip("[]")


def endpoint_of(settings: SchedulerSettings) -> str:
    """The endpoint at which other schedulers call this one."""
    address = address_of(settings)
    return (
        f"[{address}]:{port_of(settings)}" if ":" in address else f"{address}:{port_of(settings)}"
    )


def addresses_for_machines(settings: SchedulerSettings) -> tuple[str, ...]:
    """What new machines of node pools connect to: the name of all schedulers in DNS, else this one."""
    if settings.nodepool_schedulers:
        return settings.nodepool_schedulers
    if dns_etcd_endpoints(settings):
        return (scheduler_service(zone_of(settings)),)
    return (endpoint_of(settings),)


def port_of(settings: SchedulerSettings) -> int:
    return settings.advertise_port or settings.grpc_port


def dns_etcd_endpoints(settings: SchedulerSettings) -> tuple[str, ...]:
    """Empty: there is none, and nothing is published."""
    if settings.discovery_etcd_endpoints:
        return settings.discovery_etcd_endpoints
    return settings.etcd_endpoints if settings.store == ETCD else ()


def dns_listen_of(settings: SchedulerSettings) -> tuple[str, int] | None:
    """Where this scheduler answers DNS queries itself. None: it does not."""
    if settings.dns_listen in ("", "off"):
        return None
    return split_server(settings.dns_listen, variable="PERSYS_DNS_LISTEN")


def check_discovery_settings(settings: SchedulerSettings) -> None:
    """Raises SettingsError with the name of the variable."""
    zone_of(settings)
    dns_listen_of(settings)
    if settings.dns_server:
        split_server(settings.dns_server)
    if settings.advertise_ip and not _is_one_address(settings.advertise_ip):
        raise SettingsError(
            f"SCHEDULER_ADVERTISE_IP={settings.advertise_ip!r}: expected a reachable address, "
            "for example 10.0.0.5"
        )
    if not 0 <= settings.advertise_port <= PORT_MAX:
        raise SettingsError(
            f"SCHEDULER_ADVERTISE_PORT={settings.advertise_port}: expected 1 to {PORT_MAX}"
        )


def _is_one_address(text: str) -> bool:
    try:
        return not ip_address(text.strip("[]")).is_unspecified
    except ValueError:
        return False
