"""Short forms of ports, volumes and health checks in spec files: "8080:80/udp", "tcp:5432"."""

import re

from google.protobuf.message import Message

from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import health
from persys.wire.spec.checks import PORT_MAX

_PORT = re.compile(r"(?:(?P<host>\d+):)?(?P<container>\d+)(?:/(?P<protocol>tcp|udp))?")


def port(path: str, text: str, message: Message) -> None:
    """ "80" lets the node choose the host port."""
    assert isinstance(message, control_pb2.Port)
    found = _PORT.fullmatch(text)
    if found is None:
        expected = 'expected "8080:80", "8080:80/udp" or "80"'
        raise InvalidError(path, f"invalid port {text!r}: {expected}")
    host, container = whole_number(found["host"] or "0"), whole_number(found["container"])
    if host is None or container is None or not 1 <= container <= PORT_MAX or host > PORT_MAX:
        raise InvalidError(path, f"invalid port {text[:40]!r}: expected ports from 1 to {PORT_MAX}")
    message.host_port = host
    message.container_port = container
    message.protocol = found["protocol"] or "tcp"


def volume(path: str, text: str, message: Message) -> None:
    assert isinstance(message, control_pb2.VolumeMount)
    parts = text.split(":")
    mode = parts[2] if len(parts) == 3 else "rw"
    if (
        len(parts) not in (2, 3)
        or mode not in ("ro", "rw")
        or not all(part.startswith("/") for part in parts[:2])
    ):
        raise InvalidError(
            path,
            f'invalid volume {text!r}: expected "/host/path:/container/path", with :ro for read-only',
        )
    message.host_path, message.container_path = parts[:2]
    message.read_only = mode == "ro"


SHORT_FORMS = {"Port": port, "VolumeMount": volume, "HealthCheck": health.short}
