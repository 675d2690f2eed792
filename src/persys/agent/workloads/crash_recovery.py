"""Recovery after a crash: resumes orders one at a time, and quarantines an order that crashes the agent.

The journal records whether the last run exited cleanly, and which order was being resumed alone at the time.
A crash leaves a trace in a file next to the journal: faulthandler writes it on a fatal signal, an exit
handler on an exception. A kill from outside leaves none. A crash counts only for an order that was being
resumed alone. After the second crash the order is quarantined: it fails, and only a new order retries it.
"""

import asyncio
import atexit
import faulthandler
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

import structlog

from persys.agent.journal.records import JournalChange
from persys.agent.journal.store import Journal
from persys.core.agent.admission import LastExit, crashes_after, last_exit
from persys.errors import PersysError, StoreUnavailableError
from persys.infra.atomic_files import PRIVATE
from persys.model.ids import WorkloadId

log = structlog.get_logger()

_SUFFIX = "-crash"
_TRACE_CHARS_MAX = 4000


@dataclass(frozen=True, slots=True)
class Recovery:
    """How the last run exited, and how often each order has crashed the agent."""

    last_exit: LastExit = LastExit.CLEAN
    crashes: dict[WorkloadId, int] = field(default_factory=dict)


@contextmanager
def recorded_run(journal: Journal, path: Path, stop: asyncio.Event) -> Iterator[Recovery]:
    """Record a run of the agent. The run is clean only if `stop` is set at its end."""
    trace_path = path.with_name(f"{path.name}{_SUFFIX}")
    trace = _read(trace_path)
    ended = last_exit(clean=journal.last_run.clean, trace=trace)
    crashes = crashes_after(journal.last_run.crashes, ended, alone=journal.last_run.resuming)
    if ended is not LastExit.CLEAN:
        log.warning(
            "agent.ended_uncleanly",
            cause=ended.value,
            resuming=journal.last_run.resuming or "",
            trace=trace[-_TRACE_CHARS_MAX:],
        )
    journal.begin_run(crashes)
    # An exit handler, because an exception such as SystemExit may unwind every frame at once.
    leave_trace = partial(trace_path.write_text, "an exception ended the agent\n")
    with ExitStack() as stack:
        if (file := _opened(trace_path)) is not None:
            stack.callback(file.close)
            faulthandler.enable(file, all_threads=True)
            atexit.register(leave_trace)
        expected = False
        try:
            yield Recovery(ended, dict(crashes))
        except PersysError:
            expected = True  # for example a port that is already in use
            raise
        finally:
            faulthandler.disable()
            if stop.is_set() or expected:
                atexit.unregister(leave_trace)
                journal.end_run()


def _read(trace_path: Path) -> str:
    try:
        return trace_path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as err:
        log.warning("crash_trace.unreadable", path=str(trace_path), reason=str(err))
        return ""


def _opened(trace_path: Path) -> TextIO | None:
    """None: a crash of this run leaves no trace and counts for no order."""
    try:
        trace_path.touch(mode=PRIVATE)
        trace_path.chmod(PRIVATE)
        return trace_path.open("w")
    except OSError as err:
        log.warning("crash_trace.not_kept", path=str(trace_path), reason=str(err))
        return None


async def record_resuming(journal: Journal, workload_id: WorkloadId | None) -> None:
    """Record which order is being resumed alone; None: none."""
    try:
        await journal.commit(JournalChange(resuming=workload_id or WorkloadId("")))
    except StoreUnavailableError as err:
        log.warning("resume.not_kept", reason=str(err))  # a crash then counts for no order
