"""Renders lists and single messages in the five formats of -o.

JSON and YAML are protobuf JSON with snake_case names. Zero values are included, so that a script can rely on
each key; a list is an array.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from persys.infra.clock import SystemClock

if TYPE_CHECKING:
    from google.protobuf.message import Message

Row = Mapping[str, Any]
"""One JSON object of a gateway."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_UNIT_STEP = 1024
_CELL_LENGTH_MAX = 60

RowT = TypeVar("RowT")
T = TypeVar("T", bound="Message")


class Column(NamedTuple, Generic[T]):
    title: str
    text: Callable[[T, datetime], str]
    wide: bool = False


def render_list(
    messages: Sequence[T],
    options: Namespace,
    *,
    columns: Sequence[Column[T]],
    name: Callable[[T], str],
    empty: str,
) -> str:
    """`empty` is the text for an empty table."""
    match options.output:
        case "name":
            return "\n".join(name(message) for message in messages)
        case "json" | "yaml":
            return dump([to_dict(message) for message in messages], options.output)
        case form:
            if not messages:
                return empty
            chosen = [column for column in columns if form == "wide" or not column.wide]
            return table(chosen, messages, SystemClock().now())


def table(columns: Sequence[Column[T]], messages: Sequence[T], now: datetime) -> str:
    rows = [[column.text(message, now) for column in columns] for message in messages]
    return align_columns([[column.title for column in columns], *rows])


def render_one(
    message: T,
    options: Namespace,
    *,
    describe: Callable[[T, datetime, bool], str],
    name: Callable[[T], str],
) -> str:
    match options.output:
        case "name":
            return name(message)
        case "json" | "yaml":
            return dump(to_dict(message), options.output)
        case form:
            return describe(message, SystemClock().now(), form == "wide")


def render_rows(
    rows: Sequence[RowT],
    options: Namespace,
    *,
    columns: Mapping[str, Callable[[RowT], str]],
    name: Callable[[RowT], str],
    empty: str,
    blank: str = "",
) -> str:
    """Render JSON objects or msgspec structs. `empty` is printed for no rows, `blank` for an empty cell."""
    match options.output:
        case "name":
            return "\n".join(name(row) for row in rows)
        case "json" | "yaml":
            from msgspec import to_builtins  # slow to import

            return dump(to_builtins(list(rows)), options.output)
        case _ if not rows:
            return empty
        case _:
            cells = [[text(row) or blank for text in columns.values()] for row in rows]
            return align_columns([list(columns), *cells])


def to_dict(message: "Message") -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def dump(value: object, form: str) -> str:
    if form == "json":
        import json

        return json.dumps(value, indent=2, ensure_ascii=False)
    from persys.core import bounded_yaml  # imported only when needed: start-up time

    return bounded_yaml.dump(value).rstrip("\n")


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def key_value_lines(facts: Sequence[tuple[str, str]]) -> str:
    """One fact per line; facts with an empty text are omitted."""
    return align_columns([[f"{title}:", text] for title, text in facts if text])


def cropped(text: str) -> str:
    """One line that is short enough for a column."""
    line = " ".join(text.split())
    return line if len(line) <= _CELL_LENGTH_MAX else line[: _CELL_LENGTH_MAX - 1] + "…"


def code_text(code: str) -> str:
    """A status or reason code in the style of all tables: `IMAGE_NOT_FOUND` is ImageNotFound."""
    if "_" not in code and code not in (code.lower(), code.upper()):
        return code  # it has this style
    return "".join(part.capitalize() for part in code.split("_"))


def format_bytes(count: int) -> str:
    """Bytes in a human-readable unit, for example `1.5MiB`."""
    amount, unit = float(count), 0
    while amount >= _UNIT_STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _UNIT_STEP, unit + 1
    decimals = 1 if unit and amount < 10 else 0
    return f"{amount:.{decimals}f}{_UNITS[unit]}"
