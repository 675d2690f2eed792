"""`persysctl record`: list, show, export and delete stored records that the scheduler cannot read."""

import os
from argparse import Namespace
from datetime import datetime
from pathlib import Path

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, key_value_lines, render_list, render_one
from persys.errors import InvalidError
from persys.wire.gen.control.v1.control_pb2 import QuarantinedRecord, RecordView

_COLUMNS = (
    Column[QuarantinedRecord]("KEY", lambda record, now: record.key),
    Column[QuarantinedRecord]("TYPE", lambda record, now: record.type),
    Column[QuarantinedRecord]("STATE", lambda record, now: _state(record)),
    Column[QuarantinedRecord]("REASON", lambda record, now: record.reason),
)
_PRIVATE = 0o600


def list_records(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            client.list_records,
            lambda found: render_list(
                found,
                options,
                columns=_COLUMNS,
                name=lambda record: record.key,
                empty="no unreadable records",
            ),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        view = client.get_record(options.record)
    if options.export:
        _write(Path(options.export), view.value)
        print(f"{options.export}: {len(view.value)} bytes of {view.record.key}")
        return ExitCode.OK
    print(render_one(view, options, describe=_described, name=lambda one: one.record.key))
    return ExitCode.OK


def delete(options: Namespace) -> ExitCode:
    if not options.confirm:
        raise InvalidError(
            "--confirm",
            f"is required: this deletes the stored record {options.record}; export it first with "
            f"`persysctl record get {options.record} --export FILE`",
        )
    with scheduler_client(options) as client:
        next_step = client.delete_record(options.record, version=options.record_version or 0)
    print(f"record {options.record} is deleted" + (f"; {next_step}" if next_step else ""))
    return ExitCode.OK


def _state(record: QuarantinedRecord) -> str:
    return "replaced by the next report" if record.replaceable else "held"


def _described(view: RecordView, now: datetime, _wide: bool) -> str:
    facts = key_value_lines(
        (
            ("Key", view.record.key),
            ("Type", view.record.type),
            ("State", _state(view.record)),
            ("Reason", view.record.reason),
            ("Version", str(view.stored_version)),
            ("Size", f"{len(view.value)} bytes"),
        )
    )
    return f"{facts}\nValue:\n{view.value.decode('utf-8', 'backslashreplace')}"


def _write(path: Path, value: bytes) -> None:
    """Readable only by its owner: a record may hold secrets. An existing file is not replaced."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(value)
    except OSError as err:
        raise InvalidError("--export", f"{path}: {err.strerror}") from err
