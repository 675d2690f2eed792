"""Services in spec files: one document with `kind: service`.

A port is a number, a text such as `53/udp`, or a mapping; `port` is short for a list with one. The
scheduler's checks that need no cluster run here too, so that a file is applied completely or not at all.
"""

import re
from datetime import UTC, datetime

from google.protobuf.message import Message

from persys.core.bounded_yaml import MappingNode, Node, ScalarNode
from persys.errors import InvalidError
from persys.model.ids import workload_id
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.strict import entries, error_at, fill, text_of, unknown_key

KIND = "service"
KEYS = ("id", "port", "ports", "members", "hosts")
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_PORT = re.compile(r"(?P<port>[0-9]{1,5})(?:/(?P<protocol>tcp|udp|http))?")


def read_service(node: Node) -> control_pb2.ServiceSpec:
    """Raises InvalidError that names the key. `status`, which `service get -o yaml` prints, is ignored."""
    spec = control_pb2.ServiceSpec()
    lists: list[tuple[ScalarNode, Node]] = []
    for key, value in entries(node, ""):
        match key.value:
            case "kind":
                pass
            case "status" if isinstance(value, MappingNode):
                pass
            case "id":
                spec.service_id = text_of(value, "id")
            case "port":
                fill(spec.ports.add(), value, "port", short_forms={"ServicePort": _port})
            case "ports" | "members" | "hosts":
                lists.append((key, value))
            case _:
                raise unknown_key(key, "", KEYS)
    if spec.ports and (given := next((key for key, _ in lists if key.value == "ports"), None)):
        raise error_at(given, "ports", "conflicts with port; set only one of them")
    in_lists = MappingNode(node.tag, lists, node.start_mark, node.end_mark)
    fill(spec, in_lists, "", short_forms={"ServicePort": _port})
    workload_id(spec.service_id, field="id")
    _check(spec)
    return spec


def key_of(field: str) -> str:
    """The key in a file of a field that the scheduler names."""
    name = field.removeprefix("service.")
    return "id" if name == "service_id" else name


def _port(path: str, text: str, message: Message) -> None:
    assert isinstance(message, control_pb2.ServicePort)
    found = _PORT.fullmatch(text)
    if found is None:
        expected = 'expected a number, "53/udp", "8080/http" or a mapping'
        raise InvalidError(path, f"invalid port {text[:40]!r}: {expected}")
    message.port = int(found["port"])
    message.protocol = found["protocol"] or ""


def _check(spec: control_pb2.ServiceSpec) -> None:
    from persys.core.services.checks import check_service  # only for services: start-up time
    from persys.wire.control.services import service_of

    try:
        check_service(service_of(spec, _ANY_TIME))
    except InvalidError as err:
        raise InvalidError(key_of(err.field), err.problem) from None
