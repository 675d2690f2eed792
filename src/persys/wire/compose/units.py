"""Parses ports, volumes, sizes and CPU counts in the syntax of Compose files."""

import re
from math import ceil
from typing import NamedTuple

from persys.core.numbers import whole_number
from persys.model.spec import Port
from persys.wire.spec.checks import CPU_MILLICORES_MAX, MEMORY_MB_MAX, PORT_MAX

_PORT = re.compile(
    r"(?:(?:(?P<address>[^/]*):)?(?P<host>\d+(?:-\d+)?)?:)?"
    r"(?P<container>\d+(?:-\d+)?)(?:/(?P<protocol>[a-z]+))?"
)
_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) *(?P<unit>[bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_CPUS = re.compile(r"[0-9]+(\.[0-9]+)?|\.[0-9]+")
_MEBIBYTE = 1 << 20


class Mount(NamedTuple):
    """`source` is a host path, a volume name, or "" for an anonymous volume."""

    source: str
    read_only: bool
    target: str = ""

    @property
    def is_bind(self) -> bool:
        return self.source.startswith(("/", ".", "~"))


def ports(text: str) -> tuple[Port, ...]:
    """The fixed host ports of a short port syntax such as `8080:80/udp`. Raises ValueError."""
    found = _PORT.fullmatch(text)
    if found is None:
        raise ValueError("expected a port such as 80, 8080:80 or 127.0.0.1:8080:80/udp")
    return published(found["host"] or "", found["container"], found["protocol"] or "tcp")


def published(host: str, container: str, protocol: str) -> tuple[Port, ...]:
    inside = _range(container)
    if not host:
        return ()
    outside = _range(host)
    if len(outside) != len(inside):
        return ()  # Docker picks a free port of the range
    pairs = zip(outside, inside, strict=True)
    return tuple(Port(target, source, protocol) for source, target in pairs if source)


def mount(text: str) -> Mount:
    """`name:/path`, `/host/path:/path:ro`, or `/path` for an anonymous volume."""
    source, *rest = text.split(":")
    if not rest:
        return Mount("", read_only=False)
    modes = rest[1].split(",") if len(rest) > 1 else []
    return Mount(source, "ro" in modes, rest[0])


def memory_mb(text: str) -> int:
    """Mebibytes, rounded up. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("expected a size such as 64m or 1g")
    size = float(found["number"]) * (1 << _UNITS[found["unit"].lower()]) / _MEBIBYTE
    if size > MEMORY_MB_MAX:
        raise ValueError(f"expected at most {MEMORY_MB_MAX >> 10}g")
    return ceil(size)


def cpu_millicores(text: str) -> int:
    if not _CPUS.fullmatch(text):
        raise ValueError("expected a number of cpus such as 0.5")
    millicores = float(text) * 1000
    if millicores > CPU_MILLICORES_MAX:
        raise ValueError(f"expected at most {CPU_MILLICORES_MAX // 1000}")
    return ceil(millicores)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    begin, end = whole_number(first), whole_number(last or first)
    if begin is None or end is None or not begin <= end <= PORT_MAX:
        raise ValueError(f"expected ports from 1 to {PORT_MAX}")
    return range(begin, end + 1)
