"""Strict decoding of YAML into protobuf messages: unknown keys and wrong types are refused by name.

It reads nodes instead of loaded values: a node has its line and its original text. `env: {VERSION: 1.10}`
stays 1.10, and `restart_policy: no` is the word no.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from persys.core.bounded_yaml import TAG, MappingNode, Node, ScalarNode, SequenceNode
from persys.errors import InvalidError

_WORDS_THAT_YAML_TAKES_FOR_BOOLEANS = frozenset({"yes", "no", "on", "off"})
_WHOLE = re.compile(r"[-+]?[0-9]+")
_PERMISSIONS = re.compile(r"0o?[0-7]{1,4}")
_DIGITS_MAX = 40
OCTAL_FIELDS = frozenset({"persys.control.v1.FileMount.mode"})
_INT_BITS = {
    FieldDescriptor.CPPTYPE_INT32: 32,
    FieldDescriptor.CPPTYPE_INT64: 64,
}

ShortForm = Callable[[str, str, Message], None]
"""Fills a message from text. Its first argument is the path of the field, for the error."""


# The names of the marks of nodes that were not read from the file start with this option.
SET_OPTION = "--set"


class Position(NamedTuple):
    """A place in a spec file. Line and column count from 1; 0: unknown."""

    line: int = 0
    column: int = 0
    option: str = (
        ""  # the option of the command line that the value comes from, instead of the file
    )

    def prefix(self, file: str) -> str:
        """`FILE:LINE:COLUMN`, as far as it is known, or the option."""
        if self.option:
            return self.option
        return ":".join([file, *(str(number) for number in self[:2] if number)])


NOWHERE = Position()


class SpecFileError(InvalidError):
    """A spec file is invalid."""

    def __init__(self, field: str, problem: str, *, at: Position = NOWHERE) -> None:
        super().__init__(field, problem)
        self.at = at

    @property
    def line(self) -> int:
        return self.at.line


def position_of(node: Node) -> Position:
    mark = node.start_mark
    if str(mark.name).startswith(SET_OPTION):
        return Position(option=str(mark.name))
    return Position(mark.line + 1, mark.column + 1)


def fill(
    message: Message,
    node: Node,
    path: str,
    *,
    short_forms: Mapping[str, ShortForm] | None = None,
) -> None:
    """Set the fields of `message` from the mapping `node`. `short_forms` are parsers by message name."""
    forms = short_forms or {}
    form = forms.get(message.DESCRIPTOR.name)
    if form is not None and isinstance(node, ScalarNode):
        form(path, node.value, message)
        return
    seen: set[str] = set()
    for key, value in entries(node, path):
        place = _join(path, key.value)
        field = _field(message, key, path)
        if field.name in seen:
            raise error_at(key, place, "given twice")
        seen.add(field.name)
        _refuse_second_choice(message, field, key, place)
        _set(message, field, value, place, forms)


def entries(node: Node, path: str) -> Iterator[tuple[ScalarNode, Node]]:
    """The pairs of a mapping; its merge keys (<<) are already resolved."""
    if not isinstance(node, MappingNode):
        raise error_at(node, path, f"expected a mapping of keys to values, got {kind_of(node)}")
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise error_at(key, path, "a key must be plain text")
        if key.value in seen:
            raise error_at(key, _join(path, key.value), "given twice")
        seen.add(key.value)
        yield key, value


def unknown_key(key: ScalarNode, path: str, known: Sequence[str]) -> SpecFileError:
    near = difflib.get_close_matches(_snake(key.value), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
    return error_at(key, _join(path, key.value), f"unknown key; {hint}")


def error_at(node: Node, path: str, problem: str) -> SpecFileError:
    return SpecFileError(path, problem, at=position_of(node))


def text_of(node: Node, path: str) -> str:
    """The text of a node whose field takes text."""
    if isinstance(node, ScalarNode):
        if node.tag == f"{TAG}str" or node.value.lower() in _WORDS_THAT_YAML_TAKES_FOR_BOOLEANS:
            return str(node.value)
        if node.tag != f"{TAG}null":
            raise error_at(
                node, path, f'expected text, got {kind_of(node)}; quote it: "{node.value}"'
            )
    raise error_at(node, path, f"expected text, got {kind_of(node)}")


def _set(
    message: Message,
    field: FieldDescriptor,
    node: Node,
    path: str,
    forms: Mapping[str, ShortForm],
) -> None:
    target: Any = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key, value in entries(node, path):
            target[key.value] = _as_written(value, _join(path, key.value))
    elif field.is_repeated:
        for index, item in enumerate(items_of(node, path)):
            place = f"{path}[{index}]"
            if field.message_type is not None:
                fill(target.add(), item, place, short_forms=forms)
            else:
                target.append(_as_written(item, place))
    elif field.message_type is not None:
        # An empty mapping still selects this part of a oneof.
        target.SetInParent()
        fill(target, node, path, short_forms=forms)
    else:
        setattr(message, field.name, _scalar(field, node, path))


def items_of(node: Node, path: str) -> Sequence[Node]:
    if isinstance(node, SequenceNode):
        return list(node.value)
    hint = ""
    if isinstance(node, ScalarNode) and path.rpartition(".")[2] in ("command", "args"):
        hint = '; write each argument as an item, for example ["sh", "-c", "echo hello"]'
    raise error_at(node, path, f"expected a list, got {kind_of(node)}{hint}")


def _scalar(field: FieldDescriptor, node: Node, path: str) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return text_of(node, path)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        if node.tag != f"{TAG}bool":
            raise error_at(node, path, f"expected true or false, got {kind_of(node)}")
        return node.value.lower() in ("true", "yes", "on")
    if field.full_name in OCTAL_FIELDS:
        return _permissions(node, path)
    return integer_of(node, path, bits=_INT_BITS[field.cpp_type])


def _permissions(node: Node, path: str) -> int:
    """Octal with a leading 0, as in chmod. YAML versions differ in how they read 0444."""
    if not isinstance(node, ScalarNode) or not _PERMISSIONS.fullmatch(node.value):
        raise error_at(node, path, f"expected permissions, for example 0444, got {kind_of(node)}")
    return int(node.value.removeprefix("0o"), 8)


def integer_of(node: Node, path: str, *, bits: int = 32) -> int:
    if not isinstance(node, ScalarNode) or not _WHOLE.fullmatch(node.value):
        raise error_at(node, path, f"expected a whole number, got {kind_of(node)}")
    # Python refuses to convert thousands of digits; a 64-bit number has at most 19.
    number = int(node.value) if len(node.value) <= _DIGITS_MAX else None
    if number is None or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise error_at(
            node, path, f"{node.value[:40]} is out of range; expected a {bits}-bit number"
        )
    return number


def _as_written(node: Node, path: str) -> str:
    """In lists and maps of text, numbers and booleans are read as the original text."""
    if not isinstance(node, ScalarNode) or node.tag == f"{TAG}null":
        raise error_at(node, path, f"expected text, got {kind_of(node)}")
    return str(node.value)


def _field(message: Message, key: ScalarNode, path: str) -> FieldDescriptor:
    # The type stubs have two kinds of descriptors; at run time there is one.
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    for field in fields:
        if key.value in (field.name, field.json_name):
            return cast("FieldDescriptor", field)
    raise unknown_key(key, path, [field.name for field in fields])


def _refuse_second_choice(
    message: Message, field: FieldDescriptor, key: ScalarNode, path: str
) -> None:
    if field.containing_oneof is None:
        return
    chosen = message.WhichOneof(field.containing_oneof.name)
    if chosen is not None:
        raise error_at(key, path, f"conflicts with {chosen}; set only one of them")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def kind_of(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    match node.tag.removeprefix(TAG):
        case "null":
            return "nothing"
        case "bool":
            return f"the boolean {node.value}"
        case "int" | "float":
            return f"the number {node.value}"
        case _:
            return f"the text {node.value[:40]!r}"
