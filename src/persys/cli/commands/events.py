"""`persysctl events`: list events, or stream them across restarts of the scheduler."""

import gc
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING, TypedDict

from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import duration
from persys.cli.framework.ages import BLANK, timestamp
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.output import Column, dump, render_list, to_dict
from persys.errors import UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import EventView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_RETRY_SECONDS = 0.5
_WIDTHS = (20, 20, 24, 16)  # of the columns of a watch, where later rows are not known yet

_COLUMNS: tuple[Column[EventView], ...] = (
    Column("TIME", lambda event, now: _time(event)),
    Column("KIND", lambda event, now: event.kind),
    Column("WORKLOAD", lambda event, now: event.workload_id or BLANK),
    Column("NODE", lambda event, now: event.node_id or BLANK),
    Column("SEQUENCE", lambda event, now: str(event.sequence), wide=True),
    Column("REVISION", lambda event, now: event.revision_id or BLANK, wide=True),
    Column("EPOCH", lambda event, now: str(event.epoch or BLANK), wide=True),
    Column("IDENTITY", lambda event, now: event.identity or BLANK, wide=True),
    Column("SOURCE", lambda event, now: event.source or BLANK, wide=True),
    Column("TASK", lambda event, now: event.task_id or BLANK, wide=True),
    Column("MESSAGE", lambda event, now: " ".join(event.message.split()) or BLANK),
)


def show(options: Namespace) -> ExitCode:
    if options.watch and options.after is not None and (options.since or options.limit):
        raise UsageError(
            "--watch cannot combine --after with --since or --limit: they set where it starts"
        )
    since = _since(options)
    with scheduler_client(options) as client:
        if options.watch:
            with suppress(KeyboardInterrupt):  # the user ends the stream
                _watch(client, options, since)
            return ExitCode.OK
        found = client.list_events(
            since=since, after=options.after or 0, limit=options.limit, **_filters(options)
        )
    text = render_list(
        found.events,
        options,
        columns=_COLUMNS,
        name=lambda event: str(event.sequence),
        empty="no events",
    )
    if text:
        print(text)
    return ExitCode.OK


def _watch(client: "SchedulerClient", options: Namespace, since: datetime | None) -> None:
    gc.enable()
    after = options.after
    if after is None:
        # Fix the start before the first event, so that a restart of the scheduler loses no event.
        with_past = since is not None or options.limit
        found = client.list_events(
            since=since, limit=options.limit if with_past else 1, **_filters(options)
        )
        after = found.last_sequence
        for event in found.events if with_past else ():
            _print(event, options)
    for event in _stream(client, options, after):
        _print(event, options)


def _stream(client: "SchedulerClient", options: Namespace, after: int) -> Iterator[EventView]:
    """Yield each event once, across reconnects."""
    disconnected = False
    while True:
        try:
            for event in client.watch_events(after=after, **_filters(options)):
                disconnected = False
                after = event.sequence
                if event.kind:
                    yield event
        except UnavailableError as err:
            if not disconnected:
                print(f"no response, retrying: {err}", file=sys.stderr, flush=True)
            disconnected = True
            sleep(_RETRY_SECONDS)


def _print(event: EventView, options: Namespace) -> None:
    match options.output:
        case "name":
            text = str(event.sequence)
        case "json":
            text = json.dumps(to_dict(event), ensure_ascii=False)
        case "yaml":
            text = "---\n" + dump(to_dict(event), "yaml")
        case form:
            text = _line(event, wide=form == "wide")
    print(text, flush=True)


def _line(event: EventView, *, wide: bool) -> str:
    now = SystemClock().now()
    *cells, message = (column.text(event, now) for column in _COLUMNS if wide or not column.wide)
    widths = (*_WIDTHS, *(len(cell) for cell in cells[len(_WIDTHS) :]))
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "   ".join((*padded, message))


class _Filters(TypedDict):
    workload_id: str
    node_id: str
    kinds: list[str]


def _filters(options: Namespace) -> _Filters:
    return {
        "workload_id": options.workload,
        "node_id": options.node,
        "kinds": options.kind,
    }


def _since(options: Namespace) -> datetime | None:
    if not options.since:
        return None
    span: timedelta = duration(options.since, "--since")
    return SystemClock().now() - span


def _time(event: EventView) -> str:
    at = timestamp(event, "at")
    return BLANK if at is None else at.strftime("%Y-%m-%dT%H:%M:%SZ")
