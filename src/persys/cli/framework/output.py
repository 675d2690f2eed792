"""Renders lists and single messages in the five formats of -o.

JSON and YAML are protobuf JSON with snake_case names. Zero values are included, so that a script can rely on
each key; a list is an array.
"""

from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from persys.infra.clock import SystemClock

if TYPE_CHECKING:
    from google.protobuf.message import Message
import sys
from collections.abc import Mapping
from typing import IO, TextIO, cast

import msgspec

from persys.core.terminal import visible

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
    nothing: str,
) -> str:
    """`nothing` is the text for an empty table."""
    match options.output:
        case "name":
            return "\n".join(name(message) for message in messages)
        case "json" | "yaml":
            return dump([plain(message) for message in messages], options.output)
        case form:
            if not messages:
                return nothing
            chosen = [column for column in columns if form == "wide" or not column.wide]
            now = SystemClock().now()
            rows = [[column.text(message, now) for column in chosen] for message in messages]
            return aligned([[column.title for column in chosen], *rows])


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
            return dump(plain(message), options.output)
        case form:
            return describe(message, SystemClock().now(), form == "wide")


def plain(message: "Message") -> dict[str, Any]:
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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def described(facts: Sequence[tuple[str, str]]) -> str:
    """One fact per line; facts with an empty text are omitted."""
    return aligned([[f"{title}:", text] for title, text in facts if text])


StructT = TypeVar("StructT", bound=msgspec.Struct)


def render(
    records: Sequence[StructT],
    options: Namespace,
    *,
    columns: Mapping[str, Callable[[StructT], str]],
    name: Callable[[StructT], str],
    nothing: str,
) -> str:
    """`nothing` is the text for an empty table."""
    match options.output:
        case "name":
            return "\n".join(name(record) for record in records)
        case "json" | "yaml":
            return dump(msgspec.to_builtins(list(records)), options.output)
        case _ if not records:
            return nothing
        case _:
            rows = [[text(record) for text in columns.values()] for record in records]
            return aligned([list(columns), *rows])


class SafeStream:
    """A text stream whose `write` escapes control characters. All other calls go to the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        self.unfiltered.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def protect() -> None:
    """Replace stdout and stderr by safe streams where they are terminals. Repeatable."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, SafeStream):
            setattr(sys, name, SafeStream(stream))


def unfiltered(stream: IO[str]) -> TextIO:
    """The underlying stream, for control sequences of this program."""
    found = stream.unfiltered if isinstance(stream, SafeStream) else stream
    return cast("TextIO", found)  # sys.stdout is one
