"""Health checks: short form, fields and validation."""

import pytest

from persys.errors import InvalidError
from persys.model.spec import HealthCheck, HealthType
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec.health import VM_TYPES, health_check, health_message, short


def read(message: control_pb2.HealthCheck) -> HealthCheck:
    return health_check(message, "health_check")


def in_short(text: str) -> HealthCheck:
    message = control_pb2.HealthCheck()
    short("health_check", text, message)
    return read(message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http:8080/healthz", HealthCheck(HealthType.HTTP, port=8080, path="/healthz")),
        ("http:80", HealthCheck(HealthType.HTTP, port=80, path="/")),
        ("tcp:5432", HealthCheck(HealthType.TCP, port=5432)),
        ("image", HealthCheck()),
        ("none", HealthCheck(HealthType.NONE)),
    ],
)
def test_the_short_form_of_a_check_is_read(text: str, expected: HealthCheck) -> None:
    assert in_short(text) == expected


@pytest.mark.parametrize("text", ["http", "tcp:5432/x", "http:/x", "udp:53", "", "tcp:0"])
def test_an_invalid_short_form_of_a_check_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        in_short(text)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (control_pb2.HealthCheck(command=["true"]), HealthType.EXEC),
        (control_pb2.HealthCheck(port=80, path="/x"), HealthType.HTTP),
        (control_pb2.HealthCheck(port=80), HealthType.TCP),
        (control_pb2.HealthCheck(), HealthType.IMAGE),
    ],
    ids=["command", "path", "port", "nothing"],
)
def test_the_type_of_a_check_follows_from_its_fields(
    message: control_pb2.HealthCheck, kind: HealthType
) -> None:
    assert read(message).type is kind


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (control_pb2.HealthCheck(type="ping"), "type"),
        (control_pb2.HealthCheck(type="tcp"), "port"),
        (control_pb2.HealthCheck(type="tcp", port=70000), "port"),
        (control_pb2.HealthCheck(type="tcp", port=1, path="/x"), "path"),
        (control_pb2.HealthCheck(type="http", port=1, path="x"), "path"),
        (control_pb2.HealthCheck(type="http", port=1, path="/a b"), "path"),
        (control_pb2.HealthCheck(type="exec"), "command"),
        (control_pb2.HealthCheck(type="none", restart_unhealthy=True), "restart_unhealthy"),
        (control_pb2.HealthCheck(interval_seconds=-1), "interval_seconds"),
        (control_pb2.HealthCheck(retries=10**6), "retries"),
    ],
    ids=lambda value: str(value).replace("\n", " "),
)
def test_an_invalid_check_is_refused_with_its_field(
    message: control_pb2.HealthCheck, field: str
) -> None:
    with pytest.raises(InvalidError) as error:
        read(message)

    assert error.value.field == f"health_check.{field}"


def test_the_default_check_is_not_sent() -> None:
    assert health_message(HealthCheck(), control_pb2.HealthCheck) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("guest-agent", HealthCheck(HealthType.GUEST_AGENT)),
        ("tcp:22", HealthCheck(HealthType.TCP, port=22)),
        ("none", HealthCheck(HealthType.NONE)),
    ],
)
def test_the_check_of_a_vm_is_read(text: str, expected: HealthCheck) -> None:
    message = control_pb2.HealthCheck()
    short("health_check", text, message)

    assert health_check(message, "health_check", VM_TYPES) == expected


def test_a_vm_has_no_check_of_an_image_and_no_command() -> None:
    for message in (control_pb2.HealthCheck(type="image"), control_pb2.HealthCheck(command=["x"])):
        with pytest.raises(InvalidError, match="expected http, tcp, guest-agent or none"):
            health_check(message, "health_check", VM_TYPES)


def test_a_container_has_no_guest_agent() -> None:
    with pytest.raises(InvalidError, match="expected none, image, http, tcp or exec"):
        in_short("guest-agent")
