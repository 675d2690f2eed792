"""Suppresses logs during a run: the trace replaces them. Contained exceptions are collected.

A contained exception is a bug, unless the simulation injected it.
"""

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, NoReturn

import structlog

from persys.sim.loop import owner

ERROR = 40
# Part of the text of every injected exception.
INJECTED = "injected by the simulation"


@contextmanager
def silence(defect: Callable[[str], None] = lambda _text: None) -> Iterator[None]:
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
