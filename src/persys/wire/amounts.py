"""Ports, volumes, sizes and cpus as Compose files write them."""

import re
from math import ceil
from typing import NamedTuple

from persys.model.spec import Port

_PORT = re.compile(
    r"(?:(?:(?P<address>[^/]*):)?(?P<host>\d+(?:-\d+)?)?:)?"
    r"(?P<container>\d+(?:-\d+)?)(?:/(?P<protocol>[a-z]+))?"
)
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?) *(?P<unit>[bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_CPUS = re.compile(r"\d+(\.\d+)?|\.\d+")
_PORT_MAX = 65_535
_MEBIBYTE = 1 << 20


class Mount(NamedTuple):
    """`source` is a host path, the name of a volume, or "" for a volume without a name."""

    source: str
    read_only: bool
    target: str = ""

    @property
    def is_bind(self) -> bool:
        return self.source.startswith(("/", ".", "~"))


def ports(text: str) -> tuple[Port, ...]:
    """The host ports that `8080:80/udp` and its kin open for sure. ValueError: it is no such text."""
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
        return ()  # Docker takes whichever is free
    pairs = zip(outside, inside, strict=True)
    return tuple(Port(target, source, protocol) for source, target in pairs if source)


def mount(text: str) -> Mount:
    """`name:/path`, `/host/path:/path:ro`, or `/path` for a volume without a name."""
    source, *rest = text.split(":")
    if not rest:
        return Mount("", read_only=False)
    modes = rest[1].split(",") if len(rest) > 1 else []
    return Mount(source, "ro" in modes, rest[0])


def memory_mb(text: str) -> int:
    """Mebibytes, rounded up. ValueError: it is no size."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("expected a size such as 64m or 1g")
    size = float(found["number"]) * (1 << _UNITS[found["unit"].lower()])
    return ceil(size / _MEBIBYTE)


def cpu_millicores(text: str) -> int:
    if not _CPUS.fullmatch(text):
        raise ValueError("expected a number of cpus such as 0.5")
    return ceil(float(text) * 1000)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    if not numbers or numbers[-1] > _PORT_MAX:
        raise ValueError(f"ports are 1 to {_PORT_MAX}")
    return numbers
