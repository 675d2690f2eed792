"""Health checks in both contracts and in the short form of spec files, converted to and from the model."""

import re
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf.message import Message

from persys.errors import InvalidError
from persys.model.spec import HealthCheck, HealthType
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks

SECONDS_MAX = 24 * 60 * 60
FAILURES_MAX = 1000

HealthMessage = TypeVar("HealthMessage", control_pb2.HealthCheck, agent_pb2.HealthCheck)

# What a check of a VM may be: its node cannot run a command in it, and its image has no check.
VM_TYPES = (HealthType.HTTP, HealthType.TCP, HealthType.GUEST_AGENT, HealthType.NONE)
CONTAINER_TYPES = tuple(kind for kind in HealthType if kind is not HealthType.GUEST_AGENT)
_SHORT_WORDS = (HealthType.NONE, HealthType.IMAGE, HealthType.GUEST_AGENT)
_SHORT = re.compile(r"(?P<type>http|tcp):(?P<port>\d{1,5})(?P<path>/\S*)?")
# Printable, without spaces: it becomes part of an HTTP request line.
_URL_PATH = re.compile(r"/[!-~]*")


def health_check(
    message: control_pb2.HealthCheck | agent_pb2.HealthCheck,
    path: str,
    types: Sequence[HealthType] = CONTAINER_TYPES,
) -> HealthCheck:
    """Without a type, the type follows from the fields that are set."""
    if not message.ByteSize():
        return HealthCheck()
    known = {kind.value: kind for kind in types}
    expected = f"{', '.join(types[:-1])} or {types[-1]}"
    kind = checks.word(message.type or _implied(message), known, f"{path}.type", expected)
    probes = kind in (HealthType.HTTP, HealthType.TCP)
    if probes or message.port:
        checks.number(message.port, f"{path}.port", least=1, most=checks.PORT_MAX)
    for name, value, applies in (
        ("port", message.port, probes),
        ("path", message.path, kind is HealthType.HTTP),
        ("command", message.command, kind is HealthType.EXEC),
    ):
        if value and not applies:
            raise InvalidError(f"{path}.{name}", f"is not used by a check of type {kind}")
    if message.path and not _URL_PATH.fullmatch(message.path):
        shown = checks.quoted(message.path)
        problem = f"invalid URL path {shown}: expected a path that begins with /, without spaces"
        raise InvalidError(f"{path}.path", problem)
    if kind is HealthType.EXEC and not message.command:
        raise InvalidError(f"{path}.command", "is empty; expected a command and its arguments")
    if kind is HealthType.NONE and message.restart_unhealthy:
        raise InvalidError(f"{path}.restart_unhealthy", "needs a check of another type than none")
    return HealthCheck(
        type=kind,
        port=message.port,
        path=message.path or ("/" if kind is HealthType.HTTP else ""),
        command=checks.texts(message.command, f"{path}.command"),
        interval_seconds=_seconds(message.interval_seconds, f"{path}.interval_seconds"),
        timeout_seconds=_seconds(message.timeout_seconds, f"{path}.timeout_seconds"),
        retries=checks.number(message.retries, f"{path}.retries", most=FAILURES_MAX),
        start_period_seconds=_seconds(message.start_period_seconds, f"{path}.start_period_seconds"),
        restart_unhealthy=message.restart_unhealthy,
    )


def health_message(check: HealthCheck, kind: type[HealthMessage]) -> HealthMessage | None:
    """The message, or None for the default check."""
    if check == HealthCheck():
        return None
    return kind(
        type=check.type,
        port=check.port,
        path=check.path,
        command=check.command,
        interval_seconds=check.interval_seconds,
        timeout_seconds=check.timeout_seconds,
        retries=check.retries,
        start_period_seconds=check.start_period_seconds,
        restart_unhealthy=check.restart_unhealthy,
    )


def short(path: str, text: str, message: Message) -> None:
    """`http:8080/healthz`, `tcp:5432`, `image`, `none`, or `guest-agent` of a VM."""
    assert isinstance(message, control_pb2.HealthCheck)
    found = _SHORT.fullmatch(text)
    if text in _SHORT_WORDS:
        message.type = text
    elif found is None or (found["type"] == HealthType.TCP and found["path"]):
        raise InvalidError(
            path,
            f'invalid health check {text!r}: expected "http:8080/healthz", "tcp:5432", "image", "none", '
            '"guest-agent" of a VM, or a mapping, for example command: [cat, /ready]',
        )
    else:
        message.type, message.port = found["type"], int(found["port"])
        message.path = found["path"] or ""


def _implied(message: control_pb2.HealthCheck | agent_pb2.HealthCheck) -> str:
    if message.command:
        return HealthType.EXEC
    if message.path:
        return HealthType.HTTP
    return HealthType.TCP if message.port else HealthType.IMAGE


def _seconds(value: int, path: str) -> int:
    return checks.number(value, path, most=SECONDS_MAX)
