"""The output of all members of a set or run. Each line has the member as a prefix, and is written whole.

With --follow each member has a thread that reads its stream, and members that are created later are added.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, NamedTuple, TextIO

from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.core.terminal import LogFilter, visible
from persys.errors import NotFoundError, PersysError, UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import JobView, LogChunk, SetView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

FOLLOWED_MAX = 64
_INTERVAL_SECONDS = 1.0
_RUNNING = "Running"


class Members(NamedTuple):
    """The ids of members, and whether others may follow."""

    ids: Sequence[str]
    may_grow: bool


def members_of(view: SetView | JobView, run_id: str = "") -> Members:
    """The members of a set, or of a run; without its id, of the newest run."""
    if isinstance(view, SetView):
        return Members([member.workload_id for member in view.members], may_grow=True)
    from persys.cli.commands.job import find_run

    run = find_run(view, run_id)
    ids = [member.workload_id for member in run.members]
    return Members(ids, may_grow=run.state == _RUNNING)


def show_members(
    client: "SchedulerClient",
    options: Namespace,
    since: datetime | None,
    fetch: Callable[[], Members],
    *,
    prefixed: bool = True,
) -> ExitCode:
    """`fetch` returns the members now. Members without output are named on standard error."""
    output = _Output(raw=options.raw, prefixed=prefixed)
    reader = _Reader(client, options, output)
    if options.follow:
        _follow(reader, fetch, since)
        return ExitCode.OK
    results = [reader.read(workload_id, since) for workload_id in fetch().ids]
    return ExitCode.OK if any(results) or not results else ExitCode.FAILED


class _Reader:
    """Reads the streams of members. `read` may be called by several threads."""

    def __init__(self, client: "SchedulerClient", options: Namespace, output: "_Output") -> None:
        self._client = client
        self._options = options
        self._output = output
        self.is_closed = Event()

    def read(self, workload_id: str, since: datetime | None) -> bool:
        """Write the output of one member. False: it has none, for the reason that was printed."""
        options = self._options
        try:
            for chunk in self._client.stream_logs(
                workload_id,
                service=getattr(options, "service", ""),
                follow=options.follow,
                since=since,
                tail=options.tail,
                previous=getattr(options, "previous", False),
                timestamps=options.timestamps,
            ):
                self._output.write(workload_id, chunk)
        except PersysError as err:
            if not self.is_closed.is_set():
                self._output.note(workload_id, str(err))
            return False
        finally:
            self._output.finish(workload_id)
        return True


def _follow(reader: _Reader, fetch: Callable[[], Members], since: datetime | None) -> None:
    """Until the user ends it, or the run has ended, or the set is deleted."""
    clock = SystemClock()
    threads: dict[str, Thread] = {}
    found = fetch()
    try:
        while True:
            if len(found.ids) > FOLLOWED_MAX:
                raise UsageError(
                    f"there are {len(found.ids)} members; at most {FOLLOWED_MAX} can be followed: "
                    f"choose one, for example {found.ids[0]}"
                )
            for workload_id in found.ids:
                thread = threads.get(workload_id)
                if thread is None or (found.may_grow and not thread.is_alive()):
                    # One that is read again, after a restart, continues from now on.
                    start = since if thread is None else clock.now()
                    threads[workload_id] = _started(reader, workload_id, start)
            if not found.may_grow and not any(each.is_alive() for each in threads.values()):
                return
            reader.is_closed.wait(_INTERVAL_SECONDS)
            try:
                found = fetch()
            except UnavailableError:
                continue  # the scheduler may be restarting
    except (KeyboardInterrupt, NotFoundError):
        return
    finally:
        reader.is_closed.set()


def _started(reader: _Reader, workload_id: str, since: datetime | None) -> Thread:
    thread = Thread(target=reader.read, args=(workload_id, since), daemon=True)
    thread.start()
    return thread


class _Output:
    """Standard output and error, written line by line. On a terminal control characters are escaped."""

    def __init__(self, *, raw: bool, prefixed: bool) -> None:
        self._raw = raw
        self._prefixed = prefixed
        self._lock = Lock()
        self._pending: dict[tuple[str, str, str], bytes] = {}  # by member, service and stream
        self._filters: dict[tuple[str, str, str], LogFilter] = {}
        self._noted: set[tuple[str, str]] = set()

    def write(self, workload_id: str, chunk: LogChunk) -> None:
        stream = "stderr" if chunk.stream == "stderr" else "stdout"
        key = (workload_id, chunk.service, stream)
        with self._lock:
            data = chunk.data
            if getattr(sys, stream).isatty() and not self._raw:
                data = self._filters.setdefault(key, LogFilter()).feed(data)
            whole, newline, rest = (self._pending.pop(key, b"") + data).rpartition(b"\n")
            self._pending[key] = rest
            if newline:
                self._print(key, whole + newline)

    def finish(self, workload_id: str) -> None:
        with self._lock:
            for key in [each for each in self._pending if each[0] == workload_id]:
                rest = self._pending.pop(key)
                if key in self._filters:
                    rest += self._filters.pop(key).finish()
                if rest:
                    self._print(key, rest + b"\n")

    def note(self, workload_id: str, text: str) -> None:
        """Printed once per member and text."""
        with self._lock:
            if (workload_id, text) not in self._noted:
                self._noted.add((workload_id, text))
                print(f"{workload_id}: {text}", file=sys.stderr, flush=True)

    def _print(self, key: tuple[str, str, str], lines: bytes) -> None:
        workload_id, service, stream = key
        target: TextIO = getattr(sys, stream)
        label = f"{workload_id}/{service}" if service else workload_id
        prefix = f"{visible(label)} | ".encode() if self._prefixed else b""
        for line in lines.splitlines(keepends=True):
            target.buffer.write(prefix + line)
        target.flush()
