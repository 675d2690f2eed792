"""`persysctl service`: names with the healthy members of sets and labelled workloads behind them."""

from argparse import Namespace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import (
    Column,
    cropped,
    key_value_lines,
    render_list,
    render_one,
    table,
)
from persys.wire.gen.control.v1.control_pb2 import (
    ExcludedMember,
    ServiceEndpoint,
    ServicePort,
    ServiceSelector,
    ServiceView,
)

if TYPE_CHECKING:
    from persys.cli.commands.wait import Wait
    from persys.cli.commands.workload_change import Change
    from persys.client import SchedulerClient

_COLUMNS: tuple[Column[ServiceView], ...] = (
    Column("ID", lambda service, now: service.spec.service_id),
    Column("PORTS", lambda service, now: ",".join(map(port_text, service.spec.ports))),
    Column("MEMBERS", lambda service, now: ", ".join(map(_selector, service.spec.members))),
    Column("ENDPOINTS", lambda service, now: f"{service.healthy_count} of {service.member_count}"),
    Column("AGE", lambda service, now: age(service, "created_at", now=now)),
    Column("DNS NAME", lambda service, now: service.dns_name, wide=True),
    Column("HOSTS", lambda service, now: ",".join(service.spec.hosts) or BLANK, wide=True),
)
_ENDPOINT_COLUMNS: tuple[Column[ServiceEndpoint], ...] = (
    Column("ENDPOINT", lambda one, now: _address(one)),
    Column("PORT", lambda one, now: one.port_name),
    Column("MEMBER", lambda one, now: one.workload_id),
    Column("NODE", lambda one, now: one.node_id),
    Column("WEIGHT", lambda one, now: str(one.weight)),
    Column("HEALTHY", lambda one, now: age(one, "healthy_since", now=now)),
    Column("REVISION", lambda one, now: one.revision_id[:12], wide=True),
)
_EXCLUDED_COLUMNS: tuple[Column[ExcludedMember], ...] = (
    Column("NOT AN ENDPOINT", lambda one, now: one.workload_id),
    Column("HEALTH", lambda one, now: one.health),
    Column("NODE", lambda one, now: one.node_id or BLANK),
    Column("REASON", lambda one, now: cropped(one.reason)),
)


def list_services(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            client.list_services,
            lambda found: render_list(
                found, options, columns=_COLUMNS, name=_name, empty="no services"
            ),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.get_service(options.id),
            lambda service: _render(service, options),
            watch=options.watch,
        )


def endpoints(options: Namespace) -> ExitCode:
    """With `-o name`, only the addresses: one per line, for scripts."""
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: list(client.get_service(options.id).endpoints),
            lambda found: render_list(
                found, options, columns=_ENDPOINT_COLUMNS, name=_address, empty="no endpoints"
            ),
            watch=options.watch,
        )


def delete(options: Namespace) -> int:
    from persys.cli.commands.workload_change import SERVICE_PREFIX, Changes, finish  # start-up time

    options.wait = None
    with scheduler_client(options) as client:
        changes = Changes(client, options)
        for service_id in options.ids:
            send = partial(_delete, client, service_id)
            changes.request(SERVICE_PREFIX + service_id, send)
        return finish(changes.outcomes, options)


def port_text(port: ServicePort) -> str:
    """`http:80`, `53/udp`."""
    name = f"{port.name}:" if port.name else ""
    return f"{name}{port.port}" + (f"/{port.protocol}" if port.protocol == "udp" else "")


def _delete(client: "SchedulerClient", service_id: str) -> "tuple[Change, Wait | None]":
    from persys.cli.commands.workload_change import Change

    client.delete_service(service_id)
    return Change("deleted"), None


def _render(service: ServiceView, options: Namespace) -> str:
    if options.output == "yaml":
        from persys.wire.specfile.export import service_text  # imported only when needed

        return service_text(service).rstrip("\n")
    return render_one(service, options, describe=_described, name=_name)


def _name(service: ServiceView) -> str:
    return service.spec.service_id


def _address(endpoint: ServiceEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def _selector(selector: ServiceSelector) -> str:
    labels = ",".join(f"{name}={value}" for name, value in sorted(selector.labels.items()))
    found = f"set {selector.set}" if selector.set else labels
    return f"{found} (weight {selector.weight})" if selector.weight else found


def _described(service: ServiceView, now: datetime, wide: bool) -> str:
    spec = service.spec
    lines = key_value_lines(
        [
            ("Service", spec.service_id),
            ("DNS name", service.dns_name),
            ("Ports", ", ".join(map(port_text, spec.ports))),
            ("Members", "; ".join(map(_selector, spec.members))),
            ("Hosts", ", ".join(spec.hosts)),
            ("Endpoints", f"{service.healthy_count} of {service.member_count} members"),
            ("Age", age(service, "created_at", now=now)),
        ]
    )
    parts = [lines]
    if service.endpoints:
        columns = [column for column in _ENDPOINT_COLUMNS if wide or not column.wide]
        parts.append(table(columns, list(service.endpoints), now))
    if service.excluded:
        parts.append(table(_EXCLUDED_COLUMNS, list(service.excluded), now))
    return "\n\n".join(parts)
