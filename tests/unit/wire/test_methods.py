"""The table of RPCs against the services it describes."""

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor

from persys.model.event import EventKind
from persys.model.identity import Permission
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.methods import AGENT_METHODS, METHODS, REFUSED, Audit, Method, ReadOnly, Stream
from persys.wire.rest.routes import CONTRACT_ROUTES, ROUTES, Route

SERVICES: list[tuple[ServiceDescriptor, dict[str, Method]]] = [
    (control_pb2.DESCRIPTOR.services_by_name["AgentControl"], METHODS),
    (agent_pb2.DESCRIPTOR.services_by_name["AgentService"], AGENT_METHODS),
]
ROWS = [(row.name, row) for row in METHODS.values()]
STREAMS = {
    (False, False): Stream.NONE,
    (True, False): Stream.REQUESTS,
    (False, True): Stream.ANSWERS,
    (True, True): Stream.BOTH,
}


@pytest.mark.parametrize(("service", "table"), SERVICES)
def test_the_table_has_exactly_the_rpcs_of_the_service(
    service: ServiceDescriptor, table: dict[str, Method]
) -> None:
    assert {
        method.name: STREAMS[method.client_streaming, method.server_streaming]
        for method in service.methods
    } == {row.name: row.stream for row in table.values()}


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_change_by_a_user_is_audited(name: str, row: Method) -> None:
    if row.mutating and row.permission is not Permission.REPORT:
        assert row.audit is not Audit.NONE


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_separate_audit_event_has_a_known_kind(name: str, row: Method) -> None:
    own = row.audit in (Audit.START, Audit.END)
    assert (row.event in set(EventKind)) is own


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_only_reads_are_served_by_a_standby_or_retried(name: str, row: Method) -> None:
    if row.mutating:
        assert not row.standby
        assert not row.idempotent or row.permission is Permission.REPORT
    if row.standby:
        assert row.read_only is ReadOnly.SERVE
        assert row.stream is Stream.NONE


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_read_only_mode_refuses_only_changes(name: str, row: Method) -> None:
    assert row.mutating or row.read_only is not ReadOnly.REFUSE


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_get_route_changes_nothing(name: str, row: Method) -> None:
    if any(route.method == "GET" for route in row.routes + row.older_routes):
        assert not row.mutating


@pytest.mark.parametrize("routes", [ROUTES, CONTRACT_ROUTES])
def test_no_two_rpcs_share_a_route(routes: tuple[Route, ...]) -> None:
    places = [(route.method, route.path) for route in routes]
    assert len(places) == len(set(places))


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_every_rpc_states_its_scope_for_tokens_with_a_prefix(name: str, row: Method) -> None:
    """Without one it is refused. State it: REFUSED, UNLIMITED, or the fields with ids of workloads."""
    scope = row.scope
    assert scope is not None, f"{name}: expected a scope in wire/methods.py"
    assert scope.allowed or scope == REFUSED
    method = SERVICES[0][0].methods_by_name[name]
    for path in scope.ids:
        assert kind_of(method.input_type, path) == FieldDescriptor.TYPE_STRING, path
    for path in scope.filters:
        assert kind_of(method.output_type, path) == FieldDescriptor.TYPE_STRING, path
    for path in scope.hides:
        kind_of(method.output_type, path)


def kind_of(message: Descriptor, path: str) -> int:
    *outer, last = path.split(".")
    for name in outer:
        inner = message.fields_by_name[name].message_type
        assert inner is not None, path
        message = inner
    return message.fields_by_name[last].type


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_a_request_with_a_workload_id_is_not_unlimited(name: str, row: Method) -> None:
    fields = SERVICES[0][0].methods_by_name[name].input_type.fields_by_name
    assert row.scope is not None
    if "workload_id" in fields and row.scope.allowed:
        assert "workload_id" in row.scope.ids or row.scope.filters


def test_only_a_registration_names_the_cluster_of_its_sender() -> None:
    """A new message with a cluster id has to be refused by a scheduler of another cluster."""
    named = {
        f"{message.name}.{field.name}"
        for file in (control_pb2.DESCRIPTOR, agent_pb2.DESCRIPTOR)
        for message in file.message_types_by_name.values()
        for field in message.fields
        if field.name == "cluster_id"
    }

    assert named == {"RegisterNodeRequest.cluster_id", "ModeView.cluster_id"}
