"""Messages of services: the service of a user, decoded into the model, and its views."""

from datetime import UTC, datetime

from persys.core.services.endpoints import Endpoint, Endpoints
from persys.errors import InvalidError, MissingFieldError
from persys.model.service import (
    WEIGHT_DEFAULT,
    Selector,
    Service,
    ServiceId,
    ServicePort,
    ServiceProtocol,
)
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

EXCLUDED_SHOWN_MAX = 1_000


def service_of(message: control_pb2.ServiceSpec, now: datetime) -> Service:
    """The service of a user; `core/services/checks.py` checks the values."""
    if not message.service_id:
        raise MissingFieldError("service.service_id")
    return Service(
        ServiceId(message.service_id),
        ports=tuple(_port_of(port, f"ports[{at}]") for at, port in enumerate(message.ports)),
        members=tuple(
            Selector(selector.set, dict(selector.labels), selector.weight or WEIGHT_DEFAULT)
            for selector in message.members
        ),
        created_at=now,
        updated_at=now,
        hosts=tuple(message.hosts),
    )


def _port_of(message: control_pb2.ServicePort, field: str) -> ServicePort:
    word = message.protocol or ServiceProtocol.TCP.value
    if word not in list(ServiceProtocol):
        raise InvalidError(
            f"{field}.protocol", f"invalid protocol {word[:40]!r}: expected tcp, udp or http"
        )
    return ServicePort(message.name or str(message.port), message.port, ServiceProtocol(word))


def service_message(service: Service) -> control_pb2.ServiceSpec:
    return control_pb2.ServiceSpec(
        service_id=service.service_id,
        ports=[
            control_pb2.ServicePort(
                name="" if port.name == str(port.port) else port.name,
                port=port.port,
                protocol="" if port.protocol is ServiceProtocol.TCP else port.protocol.value,
            )
            for port in service.ports
        ],
        members=[
            control_pb2.ServiceSelector(
                set=selector.set_id,
                labels=selector.labels,
                weight=0 if selector.weight == WEIGHT_DEFAULT else selector.weight,
            )
            for selector in service.members
        ],
        hosts=service.hosts,
    )


def as_stored(message: control_pb2.ServiceSpec) -> control_pb2.ServiceSpec:
    """The spec without values that are defaults, as the scheduler shows it."""
    return service_message(service_of(message, datetime.min.replace(tzinfo=UTC)))


def service_view(
    service: Service,
    found: Endpoints,
    *,
    dns_name: str,
    member_count: int,
    endpoints: bool = True,
    excluded: bool = True,
) -> control_pb2.ServiceView:
    """`endpoints` and `excluded`: whether the view contains these lists."""
    return control_pb2.ServiceView(
        spec=service_message(service),
        created_at=timestamp(service.created_at),
        updated_at=timestamp(service.updated_at),
        dns_name=dns_name,
        member_count=member_count,
        healthy_count=found.healthy_count,
        endpoints=map(_endpoint, found.endpoints) if endpoints else (),
        excluded=[
            control_pb2.ExcludedMember(
                workload_id=one.workload_id,
                node_id=one.node_id or "",
                health=one.health,
                reason=one.reason,
            )
            for one in found.excluded[: EXCLUDED_SHOWN_MAX if excluded else 0]
        ],
    )


def _endpoint(endpoint: Endpoint) -> control_pb2.ServiceEndpoint:
    since = endpoint.healthy_since
    return control_pb2.ServiceEndpoint(
        workload_id=endpoint.workload_id,
        node_id=endpoint.node_id,
        port_name=endpoint.service_port.name,
        host=endpoint.host,
        port=endpoint.port,
        protocol=endpoint.service_port.protocol,
        weight=endpoint.weight,
        revision_id=endpoint.revision,
        healthy_since=timestamp(since) if since is not None else None,
    )
