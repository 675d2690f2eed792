"""Which services are valid, and what an apply changes. An error names the field, the value and what is
expected."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from persys.core.dns_names import LABEL_LENGTH_MAX, NAME_LENGTH_MAX, PORT_MAX, Zone
from persys.core.services.names import endpoint_name
from persys.errors import InvalidError
from persys.model import ids
from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.model.service import Selector, Service, ServicePort, ServiceProtocol

PORTS_MAX = 16
SELECTORS_MAX = 16
LABELS_MAX = 16
HOSTS_MAX = 16
WEIGHT_MAX = 100
_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?")
_HOST_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Outcome(StrEnum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ServiceChange:
    service: Service
    outcome: Outcome
    event: EventKind | None = None


def apply(old: Service | None, wanted: Service, *, now: datetime) -> ServiceChange:
    """Create or change a service that was checked."""
    if old is None:
        created = replace(wanted, created_at=now, updated_at=now)
        return ServiceChange(created, Outcome.CREATED, EventKind.SERVICE_CREATED)
    changed = replace(wanted, created_at=old.created_at, updated_at=old.updated_at)
    if changed == old:
        return ServiceChange(old, Outcome.UNCHANGED)
    changed = replace(changed, updated_at=now)
    return ServiceChange(changed, Outcome.UPDATED, EventKind.SERVICE_UPDATED)


def check_service(service: Service) -> None:
    """Raises InvalidError."""
    ids.workload_id(service.service_id, field="service_id")
    _check_ports(service.ports)
    if not 1 <= len(service.members) <= SELECTORS_MAX:
        raise InvalidError(
            "members",
            f"{len(service.members)} selectors: expected 1 to {SELECTORS_MAX},"
            " for example `- set: web`",
        )
    for at, selector in enumerate(service.members):
        _check_selector(selector, f"members[{at}]")
    _check_hosts(service)


def check_names(service: Service, zone: Zone) -> None:
    """Whether the names of all endpoints are short enough for DNS. Raises InvalidError."""
    longest = WorkloadId("x" * LABEL_LENGTH_MAX)
    for port in service.ports:
        length = len(endpoint_name(longest, port, service.service_id, zone))
        if length > NAME_LENGTH_MAX:
            raise InvalidError(
                "service_id",
                f"invalid service id {service.service_id!r}: DNS names of its endpoints have up to"
                f" {length} characters with port {port.name!r} and domain {zone.domain!r},"
                f" expected at most {NAME_LENGTH_MAX}",
            )


def _check_ports(ports: tuple[ServicePort, ...]) -> None:
    if not 1 <= len(ports) <= PORTS_MAX:
        raise InvalidError("ports", f"{len(ports)} ports: expected 1 to {PORTS_MAX}")
    for at, port in enumerate(ports):
        if not 1 <= port.port <= PORT_MAX:
            raise InvalidError(
                f"ports[{at}].port", f"invalid port {port.port}: expected 1 to {PORT_MAX}"
            )
        if not _PORT_NAME.fullmatch(port.name):
            raise InvalidError(
                f"ports[{at}].name",
                f"invalid port name {port.name[:80]!r}: expected 1 to 62 of a-z, 0-9, '-', for example http",
            )
        if any(port.name == other.name for other in ports[:at]):
            raise InvalidError(
                f"ports[{at}].name", f"port {port.name!r} occurs twice: expected distinct names"
            )


def _check_selector(selector: Selector, field: str) -> None:
    if bool(selector.set_id) == bool(selector.labels):
        found = "set and labels" if selector.set_id else "neither set nor labels"
        raise InvalidError(field, f"has {found}: expected one of them")
    if selector.set_id:
        ids.workload_id(selector.set_id, field=f"{field}.set")
    if len(selector.labels) > LABELS_MAX:
        raise InvalidError(
            f"{field}.labels", f"{len(selector.labels)} labels: expected at most {LABELS_MAX}"
        )
    if "" in selector.labels:
        raise InvalidError(f"{field}.labels", "has an empty name: expected for example app: web")
    if not 1 <= selector.weight <= WEIGHT_MAX:
        raise InvalidError(
            f"{field}.weight", f"invalid weight {selector.weight}: expected 1 to {WEIGHT_MAX}"
        )


def _check_hosts(service: Service) -> None:
    if len(service.hosts) > HOSTS_MAX:
        raise InvalidError("hosts", f"{len(service.hosts)} hosts: expected at most {HOSTS_MAX}")
    for at, host in enumerate(service.hosts):
        labels = host.split(".")
        if len(host) > NAME_LENGTH_MAX or not all(map(_HOST_LABEL.fullmatch, labels)):
            raise InvalidError(
                f"hosts[{at}]",
                f"invalid host {host[:80]!r}: expected a DNS name in lower case, as shop.example.org",
            )
    http = [port for port in service.ports if port.protocol is ServiceProtocol.HTTP]
    if service.hosts and len(http) != 1:
        raise InvalidError(
            "hosts", f"needs one port with protocol http: the service has {len(http)}"
        )
