"""Renders records of the CA in the formats of -o."""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from persys.cli.output import aligned, dump

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
