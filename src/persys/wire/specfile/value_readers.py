"""Reads mappings whose keys differ from the fields of the contract: durations, percentages and words.

A table has a reader for each key. A reader checks one value and sets a field of the message; its error has
the position of the value.
"""

import math
from collections.abc import Callable, Iterable, Mapping

from google.protobuf.message import Message

from persys.core.bounded_yaml import TAG, Node, ScalarNode
from persys.core.duration import parse_duration
from persys.wire.specfile.strict import (
    entries,
    error_at,
    integer_of,
    items_of,
    kind_of,
    text_of,
    unknown_key,
)

Reader = Callable[[Message, Node, str], None]
"""Sets a field of the message from a node. The text is the path of the key, for the error."""

_SECONDS = "_seconds"
INT32_MAX = 2**31 - 1
_NUMBER_TAGS = (f"{TAG}int", f"{TAG}float")


def fill_by(readers: Mapping[str, Reader], message: Message, node: Node, path: str) -> None:
    """Set the fields of `message` from the mapping `node`."""
    for key, value in entries(node, path):
        reader = readers.get(key.value)
        if reader is None:
            raise unknown_key(key, path, list(readers))
        reader(message, value, f"{path}.{key.value}" if path else key.value)


def key_in_file(field: str, renamed: Mapping[str, str], own: Mapping[str, Reader]) -> str:
    """The key in a file of a field that the scheduler names, for example `set.update.bake_seconds`."""
    name = field
    for prefix in ("set.", "job.", "template.", "spec."):
        name = name.removeprefix(prefix)
    name = renamed.get(name, name)
    return name.removesuffix(_SECONDS) if name.partition(".")[0] in own else name


def whole(field: str, *, least: int = 0, most: int = INT32_MAX) -> Reader:
    def read(message: Message, node: Node, path: str) -> None:
        setattr(message, field, _within(integer_of(node, path), node, path, least, most))

    return read


def whole_list(field: str, *, least: int, most: int) -> Reader:
    def read(message: Message, node: Node, path: str) -> None:
        for index, item in enumerate(items_of(node, path)):
            place = f"{path}[{index}]"
            number = _within(integer_of(item, place), item, place, least, most)
            getattr(message, field).append(number)

    return read


def text(field: str) -> Reader:
    def read(message: Message, node: Node, path: str) -> None:
        setattr(message, field, text_of(node, path))

    return read


def word(field: str, words: Iterable[str]) -> Reader:
    known = [str(each) for each in words]

    def read(message: Message, node: Node, path: str) -> None:
        found = text_of(node, path)
        if found not in known:
            expected = ", ".join(known[:-1]) + " or " * (len(known) > 1) + known[-1]
            raise error_at(node, path, f"invalid value {found[:40]!r}: expected {expected}")
        setattr(message, field, found)

    return read


def duration(field: str, *, least: int = 0, most: int = INT32_MAX) -> Reader:
    """`90s`, `1m30s`, `1h` or plain seconds."""

    def read(message: Message, node: Node, path: str) -> None:
        setattr(message, field, _within(seconds_of(node, path), node, path, least, most, "s"))

    return read


def percent(field: str) -> Reader:
    """`70%` or 70."""

    def read(message: Message, node: Node, path: str) -> None:
        written = str(node.value) if isinstance(node, ScalarNode) else ""
        digits = written.removesuffix("%").rstrip()
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
        if not number:
            expected = "expected a number above 0, for example 70%"
            raise error_at(node, path, f"invalid percentage {written[:40]!r}: {expected}")
        setattr(message, field, number)

    return read


def real(field: str) -> Reader:
    """A number above 0."""

    def read(message: Message, node: Node, path: str) -> None:
        found = node.tag in _NUMBER_TAGS and _float(node.value)
        if not found or not math.isfinite(found) or found <= 0:
            raise error_at(node, path, f"expected a number above 0, got {kind_of(node)}")
        setattr(message, field, found)

    return read


def mapping(field: str, readers: Mapping[str, Reader]) -> Reader:
    """A nested message. An empty field name: the fields belong to the same message."""

    def read(message: Message, node: Node, path: str) -> None:
        target = getattr(message, field) if field else message
        if field:
            target.SetInParent()
        fill_by(readers, target, node, path)

    return read


def seconds_of(node: Node, path: str) -> int:
    """The seconds of a duration. Fractions of a second are refused."""
    written = str(node.value) if isinstance(node, ScalarNode) else ""
    try:
        seconds = parse_duration(written).total_seconds()
    except ValueError as err:
        raise error_at(node, path, f"{written[:40]!r}: {err}") from err
    if seconds != int(seconds):
        raise error_at(node, path, f"invalid duration {written[:40]!r}: expected whole seconds")
    return int(seconds)


def _within(number: int, node: Node, path: str, least: int, most: int, unit: str = "") -> int:
    if not least <= number <= most:
        limit = "or more" if most == INT32_MAX and number < least else f"to {most}{unit}"
        raise error_at(node, path, f"is {number}{unit}; expected {least}{unit} {limit}")
    return number


def _float(written: str) -> float:
    try:
        return float(written.replace("_", ""))
    except ValueError:
        return 0.0
