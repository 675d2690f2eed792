"""Checks where a spec refers to secrets: only in variables and files. Elsewhere a reference has no effect.

Most specs have none: only specs that contain the scheme are searched.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from persys.core.bounded_yaml import scalars
from persys.core.secrets import is_reference, parse
from persys.errors import InvalidError
from persys.model.secret import SCHEME
from persys.wire.gen.control.v1 import control_pb2

_PLACES = ("spec.container.env[", "spec.compose.env[")
_FILES = "spec.container.files["


def check(message: control_pb2.WorkloadSpec) -> None:
    """Raises InvalidError with the first field that has an invalid or misplaced reference."""
    if SCHEME.encode() not in message.SerializeToString():
        return
    for path, text in _texts(message, "spec"):
        if not is_reference(text):
            continue
        if not path.startswith(_PLACES) and not (
            path.startswith(_FILES) and path.endswith("].content")
        ):
            raise InvalidError(
                path, "secret references are allowed only in env and in the content of files"
            )
        parse(text, path)


def check_stack(text: str) -> None:
    """Raises InvalidError if a Compose file contains a reference: Compose does not resolve it."""
    if SCHEME not in text:
        return
    for scalar, line in scalars(text):
        if _holds_one(scalar):
            raise InvalidError(
                "spec.compose.inline_yaml",
                f"has {SCHEME} on line {line}; write ${{NAME}} there and set NAME "
                "to the reference in spec.compose.env",
            )


def _holds_one(scalar: str) -> bool:
    """Whether it is a reference, or NAME=reference."""
    return is_reference(scalar) or is_reference(scalar.partition("=")[2])


def _texts(message: Message, path: str) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        yield from _texts_in(value, f"{path}.{field.name}")


def _texts_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Message):
        yield from _texts(value, path)
    elif isinstance(value, Mapping):
        for key in value:
            yield from _texts_in(value[key], f"{path}[{key!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for index, item in enumerate(value):
            yield from _texts_in(item, f"{path}[{index}]")
