"""`persysctl logs`. Standard error of the workload is written to standard error.

For a set, or the newest run of a job, it is the output of all members; see `member_logs.py`.
"""

import gc
import sys
from argparse import Namespace
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, TextIO

from persys.cli.commands.lookup import find_job, find_set
from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import duration
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.core.terminal import LogFilter, visible
from persys.errors import NotFoundError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import LogChunk, SetView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


def show(options: Namespace) -> ExitCode:
    since = checked(options)
    gc.enable()
    with scheduler_client(options) as client:
        try:
            _show_one(client, options, since)
        except NotFoundError:
            name = options.id
            owner = find_set(client, name) or find_job(client, name)
            if owner is None:
                raise
            from persys.cli.commands.member_logs import members_of, show_members  # start-up time

            look_up = client.get_set if isinstance(owner, SetView) else client.get_job
            return show_members(client, options, since, lambda: members_of(look_up(name)))
    return ExitCode.OK


def checked(options: Namespace) -> datetime | None:
    """The start of --since. Raises UsageError for options that exclude each other."""
    if options.follow and getattr(options, "previous", False):
        raise UsageError("--follow cannot be combined with --previous: that run has ended")
    if options.tail < 0:
        raise UsageError(f"invalid --tail {options.tail}: expected a number of lines, or 0 for all")
    if options.since is None:
        return None
    return SystemClock().now() - duration(options.since, name="--since")


def _show_one(client: "SchedulerClient", options: Namespace, since: datetime | None) -> None:
    chunks = client.stream_logs(
        options.id,
        service=options.service,
        follow=options.follow,
        since=since,
        tail=options.tail,
        previous=options.previous,
        timestamps=options.timestamps,
    )
    outputs = {name: _Output(name, raw=options.raw) for name in ("stdout", "stderr")}
    with suppress(KeyboardInterrupt):  # the user ends the stream
        for chunk in chunks:
            outputs["stderr" if chunk.stream == "stderr" else "stdout"].write(chunk)
    for output in outputs.values():
        output.finish()


class _Output:
    """Standard output or error. On a terminal, control characters of the workload are escaped."""

    def __init__(self, name: str, *, raw: bool) -> None:
        self._stream: TextIO = getattr(sys, name)
        self._lines = _Lines()
        # Services write concurrently, so each has its own filter.
        self._filters: dict[str, LogFilter] | None = None
        if self._stream.isatty() and not raw:
            self._filters = {}

    def write(self, chunk: LogChunk) -> None:
        data = chunk.data
        if self._filters is not None:
            data = self._filters.setdefault(chunk.service, LogFilter()).feed(data)
        self._stream.buffer.write(self._lines.shown(chunk.service, chunk.stream, data))
        self._stream.flush()

    def finish(self) -> None:
        for found in (self._filters or {}).values():
            self._stream.buffer.write(found.finish())
        self._stream.flush()


class _Lines:
    """Prefixes lines of a stack with their service, also when a line arrives in several chunks."""

    def __init__(self) -> None:
        self._unfinished: set[tuple[str, str]] = set()

    def shown(self, service: str, stream: str, data: bytes) -> bytes:
        if not service or not data:
            return data
        prefix = f"{visible(service)} | ".encode()
        key = (service, stream)
        text = b"".join(prefix + line for line in data.splitlines(keepends=True))
        if key in self._unfinished:
            text = text.removeprefix(prefix)
        (self._unfinished.discard if text.endswith(b"\n") else self._unfinished.add)(key)
        return text
