"""Suppresses logs during a run: the trace replaces them. Contained exceptions are collected.

A contained exception is a bug, unless the simulation injected it.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

import structlog

from persys.sim.engine.virtual_loop import owner

KEPT_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    who: str
    what: str

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        return f"{minutes:3.0f}:{seconds:06.3f}  {self.who:<12} {self.what}"


class Trace:
    """Stores the last lines only; the fingerprint covers all."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._hash = hashlib.sha256()
        self.lines: deque[Line] = deque(maxlen=KEPT_MAX)
        self.count = 0

    def add(self, who: str, what: str) -> None:
        line = Line(self._time(), who, what)
        self.lines.append(line)
        self.count += 1
        self._hash.update(f"{line.at:.6f} {who} {what}\n".encode())

    def fingerprint(self) -> str:
        return self._hash.hexdigest()[:16]


def rng(seed: int, *names: object) -> Random:
    return Random("/".join([str(seed), *map(str, names)]))  # noqa: S311  # must be repeatable


ERROR = 40
# Part of the text of every injected exception.
INJECTED = "injected by the simulation"


@contextmanager
def captured_logs(defect: Callable[[str], None] = lambda _text: None) -> Iterator[None]:
    """`defect` is called for each contained exception that was not injected."""

    def take(_logger: object, _level: str, line: MutableMapping[str, Any]) -> NoReturn:
        if line["event"] == "internal_error" and INJECTED not in line["exception"]:
            defect(_shown(line))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(ERROR), processors=[take]
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _shown(line: MutableMapping[str, Any]) -> str:
    process = getattr(owner.get(None), "name", "world")
    last = line["exception"].strip().rpartition("\n")[2].strip()
    return f"{process}: {line['where']} {line['key']}: {last}"
