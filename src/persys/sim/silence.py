"""No logs: in a simulation the trace tells what happens, and a log line costs more than what it tells of."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

CRITICAL = 50


@contextmanager
def silence() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)
