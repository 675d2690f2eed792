"""Ports, volumes and health checks as people write them in one line: "8080:80/udp", "tcp:5432"."""

import re

from google.protobuf.message import Message

from persys.errors import InvalidError
from persys.wire import health
from persys.wire.gen.control.v1 import control_pb2

_PORT = re.compile(r"(?:(?P<host>\d+):)?(?P<container>\d+)(?:/(?P<protocol>tcp|udp))?")
_PORT_MAX = 65535


def port(path: str, text: str, message: Message) -> None:
    """ "80" lets the node pick the host's port."""
    assert isinstance(message, control_pb2.Port)
    found = _PORT.fullmatch(text)
    if found is None:
        raise InvalidError(path, f'{text!r} is no port; write "8080:80", "8080:80/udp" or "80"')
    host, container = int(found["host"] or 0), int(found["container"])
    if not 1 <= container <= _PORT_MAX or host > _PORT_MAX:
        raise InvalidError(path, f"{text!r}: ports are 1 to {_PORT_MAX}")
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
            f'{text!r} is no volume; write "/on/the/host:/in/the/container", with :ro to protect it',
        )
    message.host_path, message.container_path = parts[:2]
    message.read_only = mode == "ro"


SHORT_FORMS = {"Port": port, "VolumeMount": volume, "HealthCheck": health.short}
